"""tensor[...] and tensor[...] = value, against NumPy."""

import numpy as np
import pytest

from facula import _C

F = _C.functions
ARRAY = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
MASK = ARRAY % 3 == 0


def tensor():
    return _C.tensor(ARRAY.tolist())


def as_index(i):
    """The same index with tensors in place of arrays."""
    if isinstance(i, tuple):
        return tuple(as_index(k) for k in i)
    return _C.from_numpy(i) if isinstance(i, np.ndarray) else i


class Index:
    def __getitem__(self, i):
        return i


INDEX = Index()
BASIC = [
    INDEX[1],
    INDEX[-1],
    INDEX[1:],
    INDEX[:, 1:3],
    INDEX[::2],
    INDEX[:, :, ::3],
    INDEX[..., 0],
    INDEX[0, ..., 1],
    INDEX[None],
    INDEX[:, None, 1],
    INDEX[..., None],
    INDEX[()],
    INDEX[1, 2, 3],
    INDEX[5:],
    INDEX[-2:],
    INDEX[:-1, 1],
    INDEX[...],
    INDEX[1, None, 2:],
    INDEX[np.int64(2)],
    INDEX[:, 3:1],
]
ADVANCED = [
    INDEX[np.array([0, 2])],
    INDEX[np.array([0, 2]), np.array([1, 3])],
    INDEX[:, np.array([1, -1])],
    INDEX[np.array([[0, 1], [2, 0]])],
    INDEX[np.array([0, 1]), :, np.array([1, 2])],
    INDEX[1, np.array([0, 1])],
    INDEX[..., np.array([0, 4])],
    INDEX[MASK],
    INDEX[MASK[:, 0, 0]],
    INDEX[:, MASK[0, :, 0]],
    INDEX[np.array([0, 1]), None, np.array([1, 2])],
    INDEX[[0, 1]],
    INDEX[[0, 1], [1, 2]],
    INDEX[True],
    INDEX[None, np.array([1])],
    INDEX[np.array([], dtype=np.int64)],
    INDEX[1:, np.array([0, 1]), 2:4],
]


@pytest.mark.parametrize("i", BASIC + ADVANCED, ids=repr)
def test_reading(i):
    expected = ARRAY[i]
    for index in (i, as_index(i)):
        got = tensor()[index]
        assert got.shape == expected.shape and got.tolist() == expected.tolist()


@pytest.mark.parametrize("i", BASIC + [i for i in ADVANCED if i is not True], ids=repr)
def test_writing_a_number_and_a_tensor(i):
    expected, t = ARRAY.copy(), tensor()
    expected[i] = -1
    t[as_index(i)] = -1
    assert t.tolist() == expected.tolist()
    shape = ARRAY[i].shape
    value = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) + 100
    expected[i] = value
    t[i] = _C.from_numpy(value)
    assert t.tolist() == expected.tolist()


def test_an_integer_selects_before_arrays_are_combined():
    t = tensor()  # as PyTorch; NumPy takes the integer for an array and moves its dimensions to the front
    assert t[0, :, [1, 2]].tolist() == ARRAY[0][:, [1, 2]].tolist()


def test_basic_indexing_is_a_view():
    t = tensor()
    assert (
        t[1:, 2].data_ptr() == t.data_ptr() + 4 * (20 + 10)
        and t[:].data_ptr() == t.data_ptr()
        and t[:] is not t
    )


def test_writing_broadcasts_and_drops_leading_ones():
    t = F.zeros(2, 3)
    t[0] = _C.tensor([[[1.0, 2.0, 3.0]]])
    t[:, 0] = 9
    t[1] = _C.tensor(5, dtype=_C.float64)
    assert t.tolist() == [[9, 2, 3], [5, 5, 5]]
    with pytest.raises(RuntimeError):
        t[0] = _C.tensor([1.0, 2.0])


PICKED = np.array([[True, False, True, True], [False, True, True, True]])
ROWS = np.array([2, 0, 2])


@pytest.mark.parametrize(
    "index, shape",
    [
        (PICKED, (6, 3)),
        ((slice(None), ROWS), (2, 3, 3)),
        ((slice(None), slice(None), ROWS), (2, 4, 3)),
        ((ROWS[:2] // 2, slice(None), ROWS[:2]), (2, 4)),
        (([1, 0],), (2, 4, 3)),
        ((Ellipsis, ROWS), (2, 4, 3)),
        ((None, 1, ROWS), (1, 3, 3)),
        ((1, slice(0, 2)), (2, 3)),
    ],
)
@pytest.mark.parametrize("extra", [1, 2])
def test_an_assigned_value_may_have_more_leading_ones_than_the_target(index, shape, extra):
    values = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    expected, t = np.zeros((2, 4, 3), np.float32), F.zeros(2, 4, 3)
    expected[index] = values
    t[as_index(index)] = _C.tensor(values.reshape((1,) * extra + shape))
    assert t.tolist() == expected.tolist()


def test_an_assigned_value_with_leading_ones_has_a_gradient_of_its_own_shape():
    t, value = F.zeros(2, 3), _C.tensor(np.ones((1, 1, 4), np.float32), requires_grad=True)
    t[_C.tensor([[True, False, True], [False, True, True]])] = value
    (t * _C.tensor([[1.0, 2, 3], [4, 5, 6]])).sum().backward()
    assert value.grad.tolist() == [[[1, 3, 5, 6]]]


def test_a_zero_dimensional_integer_selects():
    t = tensor()
    assert (
        t[_C.tensor(1)].tolist() == ARRAY[1].tolist() and t[_C.tensor(1), 2].data_ptr() == t[1, 2].data_ptr()
    )


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda t: t[3], IndexError, "index 3 is out of bounds for dimension 0 with size 3"),
        (lambda t: t[0, 0, 0, 0], IndexError, "too many indices for tensor of dimension 3"),
        (lambda t: t["a"], IndexError, "only integers, slices"),
        (lambda t: t[1.5], IndexError, "only integers, slices"),
        (lambda t: t[::-1], ValueError, "step must be greater than zero"),
        (lambda t: t[_C.tensor(1.5)], IndexError, "must be long, int, byte or bool"),
        (lambda t: t[_C.tensor([True, False])], IndexError, "does not match the shape"),
        (lambda t: t[_C.tensor([7])], IndexError, "out of bounds"),
        (lambda t: _C.tensor(1.0)[0], IndexError, "invalid index of a 0-dim tensor"),
        (lambda t: t.__setitem__(0, [1, 2]), TypeError, "can't assign a list"),
        (lambda t: t.__delitem__(0), TypeError, "delet"),
    ],
)
def test_bad_indices(call, kind, text):
    with pytest.raises(kind, match=text.replace("(", r"\(")):
        call(tensor())


def test_gradients_go_through_reading_and_writing():
    x = _C.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[1:] * 2).sum().backward()
    assert x.grad.tolist() == [0, 2, 2]
    x.grad = None
    y = x * 1
    y[0] = 5.0
    (y[_C.tensor([0, 1, 1])]).sum().backward()
    assert x.grad.tolist() == [0, 2, 0]
