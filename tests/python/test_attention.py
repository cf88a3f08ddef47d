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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_sharp_probabilities_keep_their_digits_in_three_dimensions(dtype):
    dtype = getattr(facula, dtype)
    rng = np.random.default_rng(1)
    given = [facula.tensor(rng.uniform(-9, 9, (4, n, 8))).to(dtype) for n in (3, 6, 6)]

    def gradients(dtype):
        leaves = [t.to(dtype).requires_grad_() for t in given]
        y = F.scaled_dot_product_attention(*leaves)
        weights = facula.linspace(0.5, 1, y.numel(), dtype=dtype).reshape(y.shape)
        return facula.autograd.grad(y, leaves, weights)

    for got, want in zip(gradients(dtype), gradients(facula.float64), strict=True):
        error = (got.double() - want).norm() / want.norm()
        assert error < facula.finfo(dtype).eps, error


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


# ---- modules


def whole(module, x, y, mask=None):
    """Multi-head attention of [L, N, E] and [S, N, E] from its definition, in float64."""
    w, b = (np.asarray(t.detach()) for t in (module.in_proj_weight, module.in_proj_bias))
    h, e = module.num_heads, module.embed_dim
    parts = [
        (t @ w[k * e : (k + 1) * e].T + b[k * e : (k + 1) * e])
        .reshape(*t.shape[:2], h, e // h)
        .transpose(1, 2, 0, 3)
        for k, t in enumerate((x, y, y))
    ]
    s = parts[0] @ parts[1].swapaxes(-1, -2) / math.sqrt(e // h)
    s = s if mask is None else s + mask
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    o = (p @ parts[2]).transpose(2, 0, 1, 3).reshape(x.shape)
    return o @ np.asarray(module.out_proj.weight.detach()).T + np.asarray(module.out_proj.bias.detach()), p


def test_multihead_attention_is_its_definition_with_and_without_weights():
    facula.manual_seed(0)
    m = facula.nn.MultiheadAttention(12, 3, dtype=facula.float64)
    assert [n for n, _ in m.named_parameters()] == [
        "in_proj_weight",
        "in_proj_bias",
        "out_proj.weight",
        "out_proj.bias",
    ]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 2, 12)), rng.standard_normal((7, 2, 12))
    left_out, padding = rng.random((5, 7)) < 0.3, rng.random((2, 7)) < 0.3
    left_out[:, 0], padding[:, 0] = False, False
    both = np.where(left_out, -np.inf, 0) + np.where(padding, -np.inf, 0)[:, None, None]
    for given, mask in (({}, None), ({"attn_mask": left_out, "key_padding_mask": padding}, both)):
        given = {k: facula.tensor(v) for k, v in given.items()}
        expected, weights = whole(m, x, y, mask)
        tx, ty = facula.tensor(x), facula.tensor(y)
        a, w = m(tx, ty, ty, **given)
        b, none = m(tx, ty, ty, need_weights=False, **given)
        assert none is None
        np.testing.assert_allclose(np.asarray(a.detach()), expected, atol=1e-13)
        np.testing.assert_allclose(np.asarray(b.detach()), expected, atol=1e-13)
        np.testing.assert_allclose(np.asarray(w.detach()), weights.mean(1), atol=1e-14)
        _, each = m(tx, ty, ty, average_attn_weights=False, **given)
        np.testing.assert_allclose(np.asarray(each.detach()), weights, atol=1e-14)


@pytest.mark.parametrize(
    "options", [{}, {"kdim": 4, "vdim": 6}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}]
)
def test_the_path_without_weights_agrees_for_every_option(options):
    m = facula.nn.MultiheadAttention(8, 2, batch_first=True, dtype=facula.float64, **options)
    for p in m.parameters():
        facula.nn.init.normal_(p)
    x = facula.randn(3, 5, 8, dtype=facula.float64)
    k, v = (facula.randn(3, 6, n, dtype=facula.float64) for n in (m.kdim, m.vdim))
    mask = facula.randn(6, 5, 6, dtype=facula.float64)
    padding = facula.zeros(3, 6, dtype=facula.float64)
    padding[0, 4:] = -math.inf
    a, _ = m(x, k, v, attn_mask=mask, key_padding_mask=padding)
    b, _ = m(x, k, v, attn_mask=mask, key_padding_mask=padding, need_weights=False)
    np.testing.assert_allclose(np.asarray(a.detach()), np.asarray(b.detach()), atol=1e-13)
    one, _ = m(x[0], k[0], v[0])
    np.testing.assert_allclose(np.asarray(one.detach()), np.asarray(m(x, k, v)[0][0].detach()), atol=1e-13)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_transformer_layer_is_made_of_its_parts(norm_first):
    layer = facula.nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=norm_first).eval()
    x = facula.randn(5, 3, 8)
    mask = facula.full([5, 5], -math.inf).triu(1)

    def attended(t):
        return layer.self_attn(t, t, t, attn_mask=mask)[0]

    def network(t):
        return layer.linear2(F.gelu(layer.linear1(t)))

    if norm_first:
        h = x + attended(layer.norm1(x))
        expected = h + network(layer.norm2(h))
    else:
        h = layer.norm1(x + attended(x))
        expected = layer.norm2(h + network(h))
    for causal in (False, True):
        y = layer(x, mask, is_causal=causal)
        np.testing.assert_allclose(np.asarray(y.detach()), np.asarray(expected.detach()), atol=1e-5)
    stack = facula.nn.TransformerEncoder(layer, 2, facula.nn.LayerNorm(8)).eval()
    twice = stack.norm(layer(layer(x, mask), mask))
    np.testing.assert_allclose(np.asarray(stack(x, mask).detach()), np.asarray(twice.detach()), atol=1e-5)
    assert "layers.1.self_attn.in_proj_weight" in stack.state_dict()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"bias_k": facula.ones(1, 1, 4)}, AssertionError, "bias_v is None"),
        ({"static_k": facula.ones(3, 5, 2)}, AssertionError, "expecting static_k of shape"),
        ({"static_v": facula.ones(4, 5, 3)}, AssertionError, "expecting static_v of shape"),
        ({"dropout_p": 2.0}, ValueError, "between 0 and 1"),
    ],
)
def test_operands_of_several_heads_are_checked_by_name(options, error, text):
    x = facula.ones(3, 2, 4)
    given = {"bias_k": None, "bias_v": None, "add_zero_attn": False, "dropout_p": 0.0, **options}
    with pytest.raises(error, match=text):
        facula.nn.functional.multi_head_attention_forward(
            x,
            x,
            x,
            4,
            2,
            facula.ones(12, 4),
            None,
            out_proj_weight=facula.ones(4, 4),
            out_proj_bias=None,
            **given,
        )


def test_given_keys_and_values_of_no_batch():
    x = facula.ones(3, 0, 4)
    none = facula.ones(0, 5, 2)
    y, _ = facula.nn.functional.multi_head_attention_forward(
        x, x, x, 4, 2, facula.ones(12, 4), None, None, None, False, 0.0, facula.ones(4, 4), None,
        static_k=none, static_v=none,
    )  # fmt: skip
    assert y.shape == (3, 0, 4)


def test_second_derivatives_without_keys_are_zero():
    q, k, v = (facula.ones(1, 1, n, 3, dtype=facula.float64, requires_grad=True) for n in (2, 0, 0))
    y = F.scaled_dot_product_attention(q, k, v)
    first = facula.autograd.grad(y, [q, k, v], facula.ones_like(y), create_graph=True)
    second = facula.autograd.grad([g.sum() for g in first], [q, k, v], allow_unused=True)
    assert [g.shape for g in first] == [q.shape, k.shape, v.shape]
    assert all(g is None or not g.any() for g in second)


def test_elements_of_a_row_may_lie_apart():
    q, k, v, g = operands((1, 2, 2, 70, 129, 24, 20), facula.float32)
    apart = [t.mT.contiguous().mT for t in (q, k, v, g)]
    assert apart[0].stride(-1) != 1

    def results(q, k, v, g):
        given = [t.detach().requires_grad_() for t in (q, k, v)]
        y = F.scaled_dot_product_attention(*given)
        return [y.detach(), *facula.autograd.grad(y, given, g)]

    for ours, expected in zip(results(*apart), results(q, k, v, g)):
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keys", [4, 40, 300])
def test_keys_after_the_query_do_not_matter_whatever_they_hold(keys):
    q, k, v = (facula.randn(1, 2, keys, 8) for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    k[..., -1, :] = math.nan
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    facula.testing.assert_close(y[..., :-1, :], expected[..., :-1, :])
    assert y[..., -1, :].isnan().all()
