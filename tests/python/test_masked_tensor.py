"""MaskedTensor: texts, results and gradients as recorded from PyTorch 2.13."""

import facula.masked as masked
import facula.nn.functional as F
import pytest

import facula

DATA = facula.arange(6.0).reshape(2, 3)
MASK = facula.tensor([[True, False, True], [True, True, False]])


def make(requires_grad=False):
    return masked.masked_tensor(DATA, MASK, requires_grad)


def shown(x):
    return [
        None if not m else v for v, m in zip(x.get_data().flatten().tolist(), x.get_mask().flatten().tolist())
    ]


def test_the_text_leaves_out_what_is_masked():
    assert repr(make()) == (
        "MaskedTensor(\n  [\n    [  0.0000,       --,   2.0000],\n    [  3.0000,   4.0000,       --]\n  ]\n)"
    )
    assert repr(masked.masked_tensor(facula.tensor([1, 2]), facula.tensor([True, False]))) == (
        "MaskedTensor(\n  [1,       --]\n)"
    )
    assert repr(masked.masked_tensor(facula.tensor(3.0), facula.tensor(False))) == "MaskedTensor(--, False)"
    assert repr(make().sum()) == "MaskedTensor(  9.0000, True)"


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: x + 1, [1.0, None, 3.0, 4.0, 5.0, None]),
        (lambda x: x * x, [0.0, None, 4.0, 9.0, 16.0, None]),
        (lambda x: x + DATA, [0.0, None, 4.0, 6.0, 8.0, None]),
        (lambda x: -x, [0.0, None, -2.0, -3.0, -4.0, None]),
        (lambda x: x.sum(1), [2.0, 7.0]),
        (lambda x: x.amax(1), [2.0, 4.0]),
        (lambda x: x.mean(0), [1.5, 4.0, 2.0]),
        (lambda x: x.prod(), [0.0]),
        (lambda x: x.argmax(), [4]),
        (lambda x: x.sum(1, keepdim=True), [2.0, 7.0]),
        (lambda x: x == x, [True, None, True, True, True, None]),
        (lambda x: x[:, 1], [None, 4.0]),
        (lambda x: x.t(), [0.0, 3.0, None, 4.0, 2.0, None]),
        (lambda x: facula.cat([x, x[:1]]), [0.0, None, 2.0, 3.0, 4.0, None, 0.0, None, 2.0]),
        (lambda x: facula.where(MASK, x, x), [0.0, None, 2.0, 3.0, 4.0, None]),
        (lambda x: x.all(), [False]),
    ],
)
def test_functions_leave_out_what_is_masked(f, expected):
    assert shown(f(make())) == expected


def test_softmax_is_of_what_is_there():
    y = F.softmax(make(), 1)
    assert facula.allclose(
        y.to_tensor(0), facula.tensor([[0.1192, 0, 0.8808], [0.2689, 0.7311, 0]]), atol=1e-4
    )
    assert facula.allclose(make().std().get_data(), facula.tensor(1.7078), atol=1e-4)


def test_gradients_are_masked():
    x = make(requires_grad=True)
    x.sum().backward()
    (x * 3).mean().backward()
    assert shown(x.grad) == [1.75, None, 1.75, 1.75, 1.75, None]
    leaf = DATA.clone().requires_grad_()
    (masked.as_masked_tensor(leaf, MASK) * 2).sum().backward()
    assert leaf.grad.tolist() == [[2.0, 0.0, 2.0], [2.0, 2.0, 0.0]]


def test_its_parts_are_there():
    x = make()
    assert masked.is_masked_tensor(x) and not masked.is_masked_tensor(DATA) and isinstance(x, facula.Tensor)
    assert facula.equal(x.get_data(), DATA) and facula.equal(x.get_mask(), MASK)
    assert x.to_tensor(7).tolist() == [[0.0, 7.0, 2.0], [3.0, 4.0, 7.0]]
    assert x.shape == (2, 3) and x.dtype == facula.float32 and len(x) == 2 and x.numel() == 6


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda: make() + masked.masked_tensor(DATA, ~MASK), ValueError, "Input masks must match"),
        (lambda: masked.masked_tensor(DATA, MASK[0]), ValueError, "must equal mask.dim"),
        (lambda: masked.masked_tensor(DATA, MASK.float()), TypeError, "mask must have dtype bool"),
        (lambda: masked.masked_tensor([1.0], MASK), TypeError, "data must be a Tensor"),
        (lambda: make().matmul(DATA.t()), TypeError, "no implementation found for 'matmul' on MaskedTensor"),
        (lambda: make().max(), TypeError, "no implementation found for 'max' on MaskedTensor"),
    ],
)
def test_what_is_refused_says_so(f, error, text):
    with pytest.raises(error, match=text):
        f()
