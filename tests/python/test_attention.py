"""scaled_dot_product_attention against the formula in NumPy, and against itself in full."""

import math

import numpy as np
import pytest

import facula
from facula.autograd import gradcheck, gradgradcheck

F = facula.nn.functional

SHAPES = [  # batch, heads, heads of keys, queries, keys, width, width of values
    (2, 3, 3, 5, 6, 4, 3),
    (1, 4, 2, 70, 129, 24, 48),
    (1, 2, 2, 130, 200, 32, 16),
    (2, 2, 1, 33, 17, 20, 80),
    (1, 1, 1, 1, 300, 16, 16),
]


def operands(shape, dtype=facula.float64, seed=0):
    b, h, hk, n, m, e, ev = shape
    rng = np.random.default_rng(seed)
    sizes = [(b, h, n, e), (b, hk, m, e), (b, hk, m, ev), (b, h, n, ev)]
    return [facula.tensor(rng.standard_normal(s), dtype=dtype) for s in sizes]


def formula(q, k, v, mask=None, causal=False, scale=None):
    """Result, and its gradients for a cotangent."""
    q, k, v = (np.asarray(t.detach().to(facula.float64)) for t in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    s = q @ k.swapaxes(-1, -2) * scale
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    with np.errstate(invalid="ignore"):
        p = np.exp(s - s.max(-1, keepdims=True))
    p = np.nan_to_num(p / p.sum(-1, keepdims=True), nan=0.0)

    def gradients(g):
        g = np.asarray(g.to(facula.float64))
        dp = g @ v.swapaxes(-1, -2)
        ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
        b, h, m = k.shape[:3]
        grouped = lambda t: t.reshape(b, h // group, group, m, -1).sum(2)  # noqa: E731
        return ds @ k, grouped(ds.swapaxes(-1, -2) @ q), grouped(p.swapaxes(-1, -2) @ g)

    return p @ v, gradients


def masks(shape):
    n, m = shape[3], shape[4]
    rng = np.random.default_rng(1)
    keep = rng.random((n, m)) < 0.7
    keep[0] = False  # a query that sees nothing
    yield {}, None, False
    yield {"is_causal": True}, None, True
    yield {"attn_mask": facula.tensor(keep)}, keep, False
    bias = rng.standard_normal((shape[0], 1, n, m))
    yield {"attn_mask": facula.tensor(bias)}, bias, False


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "dtype, tolerance",
    [("float64", 1e-12), ("float32", 5e-6), ("bfloat16", 2e-2), ("float16", 3e-3)],
)
def test_result_and_gradients_are_the_formulas(shape, dtype, tolerance):
    dtype = getattr(facula, dtype)
    q, k, v, g = operands(shape, dtype)
    for t in (q, k, v):
        t.requires_grad_()
    gqa = {"enable_gqa": True} if shape[1] != shape[2] else {}
    for given, mask, causal in masks(shape):
        if mask is not None and mask.dtype != bool:
            given = {"attn_mask": given["attn_mask"].to(dtype)}
            mask = np.asarray(given["attn_mask"].to(facula.float64))
        y = F.scaled_dot_product_attention(q, k, v, **given, **gqa)
        expected, gradients = formula(q, k, v, mask, causal)
        got = [y, *facula.autograd.grad(y, (q, k, v), g)]
        for a, b in zip(got, [expected, *gradients(g)], strict=True):
            assert a.dtype == dtype and a.shape == b.shape
            np.testing.assert_allclose(
                np.asarray(a.detach().to(facula.float64)), b, atol=tolerance * max(1, np.abs(b).max()), rtol=0
            )


def test_a_query_that_sees_nothing_gives_zeros_and_no_gradient():
    q, k, v, g = operands((1, 1, 1, 4, 5, 8, 8), facula.float32)
    q.requires_grad_()
    mask = facula.ones(4, 5, dtype=facula.bool)
    mask[1] = False
    y = F.scaled_dot_product_attention(q, k, v, mask)
    assert y[0, 0, 1].tolist() == [0.0] * 8
    y.backward(g)
    assert q.grad[0, 0, 1].tolist() == [0.0] * 8 and q.grad[0, 0, 0].abs().sum() > 0


def test_operands_of_any_strides_give_the_same():
    q, k, v, _ = operands((2, 3, 3, 40, 50, 16, 16), facula.float32)
    expected = F.scaled_dot_product_attention(q, k, v)
    for order in ((0, 2, 1, 3), (3, 2, 1, 0), (1, 3, 0, 2)):
        back = np.argsort(order).tolist()
        given = [t.permute(order).contiguous().permute(back) for t in (q, k, v)]
        assert facula.equal(F.scaled_dot_product_attention(*given), expected)


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_any_number_of_batch_dimensions_broadcasts(rank):
    rng = np.random.default_rng(0)
    batch = (2, 1, 3)[: rank - 2]
    q, k, v = (
        facula.tensor(rng.standard_normal((*b, n, 4))) for b, n in (((batch), 5), (batch, 6), (batch[1:], 6))
    )
    y = F.scaled_dot_product_attention(q, k, v)
    p = facula.softmax(q @ k.transpose(-1, -2) / 2, -1)
    np.testing.assert_allclose(np.asarray(y), np.asarray(p @ v), atol=1e-14)


def test_second_derivatives():
    q, k, v, _ = operands((1, 2, 1, 4, 5, 3, 2))
    for t in (q, k, v):
        t.requires_grad_()
    bias = facula.randn(4, 5, dtype=facula.float64, requires_grad=True)

    def plain(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def biased(q, k, v, bias):
        return F.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True)

    assert gradcheck(plain, (q, k, v)) and gradgradcheck(plain, (q, k, v))
    assert gradcheck(biased, (q, k, v, bias)) and gradgradcheck(biased, (q, k, v, bias))


def test_dropout_drops_the_share_it_was_told_and_the_same_in_backward():
    q = facula.zeros(1, 2, 96, 8)
    v = facula.eye(160).expand(1, 2, 160, 160).contiguous().requires_grad_()
    k = facula.zeros(1, 2, 160, 8)
    facula.manual_seed(3)
    kept = (
        F.scaled_dot_product_attention(q, k, v, dropout_p=0.25) * 160
    )  # the dropped probabilities themselves
    values = set(np.round(np.asarray(kept.detach().double()).ravel(), 4).tolist())
    assert values == {0.0, round(4 / 3, 4)}
    assert abs((kept == 0).float().mean().item() - 0.25) < 0.01
    (g,) = facula.autograd.grad(kept, v, facula.ones_like(kept))
    np.testing.assert_allclose(np.asarray(g[..., 0]), np.asarray(kept.detach().sum(-2)), rtol=1e-5)
    facula.manual_seed(3)
    again = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25) * 160
    assert facula.equal(kept, again)


def test_dropout_has_the_gradient_of_what_it_computed():
    q, k, v, _ = operands((1, 2, 2, 5, 6, 3, 4))
    for t in (q, k, v):
        t.requires_grad_()

    def seeded(q, k, v):
        facula.manual_seed(1)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.4)

    assert gradcheck(seeded, (q, k, v)) and gradgradcheck(seeded, (q, k, v))


def test_results_do_not_depend_on_the_number_of_threads():
    q, k, v, g = operands((1, 2, 2, 300, 300, 32, 32), facula.float32)
    for t in (q, k, v):
        t.requires_grad_()
    threads, seen = facula.get_num_threads(), []
    try:
        for n in (1, 2, 5):
            facula.set_num_threads(n)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            seen.append([y, *facula.autograd.grad(y, (q, k, v), g)])
    finally:
        facula.set_num_threads(threads)
    for other in seen[1:]:
        assert all(facula.equal(a, b) for a, b in zip(seen[0], other, strict=True))


def test_memory_does_not_grow_with_the_square_of_the_length():
    q, k, v, g = operands((1, 1, 1, 4096, 4096, 8, 8), facula.float32)
    q.requires_grad_()
    facula.reset_peak_memory()
    before = facula.memory_stats()["current_bytes"]
    F.scaled_dot_product_attention(q, k, v).backward(g)
    assert facula.memory_stats()["peak_bytes"] - before < 4096 * 4096  # bytes: a quarter of the scores


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)])
def test_empty_operands(sizes):
    q = facula.ones(sizes, requires_grad=True)
    y = F.scaled_dot_product_attention(q, q, q, scale=1.0)
    y.sum().backward()
    assert y.shape == q.shape and q.grad.shape == q.shape
    none = F.scaled_dot_product_attention(facula.ones(2, 3, 4), facula.ones(2, 0, 4), facula.ones(2, 0, 5))
    assert none.shape == (2, 3, 5) and none.abs().sum() == 0


def test_errors_name_what_was_given():
    q, k = facula.ones(2, 3, 4), facula.ones(2, 3, 5)
    with pytest.raises(RuntimeError, match="same last dimension.*\\[2, 3, 4\\].*\\[2, 3, 5\\]"):
        F.scaled_dot_product_attention(q, k, q)
    with pytest.raises(RuntimeError, match="same dtype"):
        F.scaled_dot_product_attention(q, q.double(), q)
    with pytest.raises(RuntimeError, match="is_causal"):
        F.scaled_dot_product_attention(q, q, q, facula.ones(3, 3), is_causal=True)
    with pytest.raises(RuntimeError, match="broadcast"):
        F.scaled_dot_product_attention(q, q, q, facula.ones(4, 4))
    with pytest.raises(RuntimeError, match="multiple"):
        F.scaled_dot_product_attention(
            facula.ones(1, 3, 2, 4), *[facula.ones(1, 2, 2, 4)] * 2, enable_gqa=True
        )
