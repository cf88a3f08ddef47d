"""Calls that must raise although they would give some number, and their neighbours that must not; the types
are PyTorch's.
"""

import math

import pytest

import facula as F

ZERO, ONE = F.tensor([0]), F.tensor([1])
SCALAR, SOURCE = F.tensor(3.0), F.tensor([2.0])

INTO_0D = {
    "index_select": (lambda i: F.index_select(SCALAR, 0, i), IndexError, 3.0),
    "gather": (lambda i: F.gather(SCALAR, 0, i), RuntimeError, 3.0),
    "scatter_add": (lambda i: F.scatter_add(SCALAR, 0, i, SOURCE), RuntimeError, 5.0),
    "scatter": (lambda i: F.scatter(SCALAR, 0, i, SOURCE), RuntimeError, 2.0),
    "scatter a number": (lambda i: F.scatter(SCALAR, 0, i, 7.0), RuntimeError, 7.0),
    "index_add": (lambda i: F.index_add(SCALAR, 0, i, F.tensor(2.0)), IndexError, 5.0),
    "index_copy": (lambda i: F.index_copy(SCALAR, 0, i, F.tensor(2.0)), IndexError, 2.0),
    "index_fill": (lambda i: F.index_fill(SCALAR, 0, i, 2.0), IndexError, 2.0),
}


@pytest.mark.parametrize("name", INTO_0D)
def test_an_index_into_a_0d_tensor_is_looked_at(name):
    call, error, value = INTO_0D[name]
    assert call(ZERO).item() == value
    # An IndexError may stand for PyTorch's RuntimeError.
    with pytest.raises((error, IndexError)):
        call(ONE)


@pytest.mark.parametrize("index", [3, -1, 7])
def test_index_add_beyond_a_vector_raises_another_type_than_beyond_a_matrix(index):
    at, text = F.tensor([index]), rf"index_add_?: index {index} is out of bounds for dimension with size 3"
    for dtype in (F.float32, F.float16, F.int64):
        one = F.ones(1, dtype=dtype)
        for call in (lambda x, y: F.index_add(x, 0, at, y), lambda x, y: x.index_add_(0, at, y)):
            with pytest.raises(IndexError, match=text):
                call(F.zeros(3, dtype=dtype), one)
            with pytest.raises(RuntimeError, match=text):
                call(F.zeros(3, 2, dtype=dtype), one.expand(1, 2))


def test_an_index_of_no_elements_writes_nothing():
    x = F.zeros(3, 4)
    for index in (F.zeros(7, 0, dtype=F.int64), F.zeros(0, dtype=F.int64)):
        src = F.ones(2, 2).requires_grad_()
        y = F.scatter_add(x, 0, index, src)
        assert (y == 0).all()
        (g,) = F.autograd.grad(y.sum() + src.sum() * 0, src)
        assert g.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert F.index_fill(SCALAR, 0, F.zeros(0, dtype=F.int64), 2.0).item() == 3.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.full_like(F.zeros(2, dtype=F.int8), 300),
        lambda: F.full_like(F.zeros(2, dtype=F.int64), math.inf),
        lambda: F.full_like(F.zeros(2), 1e5, dtype=F.float16),
        lambda: F.linspace(0, 300, 5, dtype=F.int8),
        lambda: F.linspace(0, 1e300, 5),
        lambda: F.nn.functional.pad(F.zeros(2, dtype=F.int8), (1, 1), value=300),
        lambda: F.addmm(*[F.ones(2, 2, dtype=F.int8)] * 3, beta=300),
        lambda: F.zeros(2).uniform_(0, 1e300),
        lambda: F.zeros(2).uniform_(-3e38, 3e38),
        lambda: F.linspace(0, 1j, 5, dtype=F.float32),
    ],
)
def test_numbers_that_the_dtype_cannot_hold_are_refused(call):
    with pytest.raises(RuntimeError):
        call()


def test_numbers_that_wrap_or_are_not_finite_are_taken():
    assert F.full_like(F.zeros(1, dtype=F.uint8), -1).item() == 255
    assert F.full_like(F.zeros(1, dtype=F.float16), math.inf).item() == math.inf


def test_linspace_of_complex_numbers_and_infinities():
    assert F.linspace(0, 1j, 3).tolist() == [0j, 0.5j, 1j]
    assert F.linspace(F.tensor(1j), F.tensor(2.0), 3).dtype == F.complex64
    got = F.linspace(math.inf, 1, 7).tolist()  # the middle counts from the end
    assert [math.isnan(v) for v in got] == [True, True, True, False, False, False, True]


def test_attention_without_keys_has_a_gradient_of_its_mask():
    q, k = F.randn(5, 4), F.randn(0, 4)
    mask = F.zeros(5, 0).requires_grad_()
    y = F.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)
    assert F.autograd.grad(y.sum(), mask)[0].shape == (5, 0)
