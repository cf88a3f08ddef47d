"""Convolutions with 3x3 kernels by Winograd's algorithm, against sums in float64."""

from pathlib import Path

import numpy as np
import pytest
from test_log import logged

import facula

F = facula.nn.functional


def convolution(x, weight, padding):
    x = np.pad(x.astype(float), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    h, w = x.shape[2] - 2, x.shape[3] - 2
    taps = [(y, x) for y in range(3) for x in range(3)]
    return sum(
        np.einsum("nchw,oc->nohw", x[:, :, i : i + h, j : j + w], weight[:, :, i, j].astype(float))
        for i, j in taps
    )


def operands(n, c, o, h, w):
    rng = np.random.default_rng(c + o)
    weight = rng.standard_normal((o, c, 3, 3)) / np.sqrt(9 * c)
    return (
        rng.standard_normal((n, c, h, w)).astype("f"),
        weight.astype("f"),
        rng.standard_normal(o).astype("f"),
    )


def image(x):
    return facula.tensor(x).contiguous(memory_format=facula.channels_last)


# Tiles that end at the border or beyond it; strips of 4, 3, 2 and 1 vectors; few and many tasks.
SHAPES = [
    (2, 64, 64, 28, 28, 1),
    (16, 32, 64, 14, 14, 1),
    (8, 256, 128, 14, 14, 1),
    (3, 48, 80, 17, 19, 1),
    (3, 32, 32, 18, 21, 0),
    (2, 32, 96, 13, 30, 2),
]


@pytest.mark.parametrize("n, c, o, h, w, padding", SHAPES)
def test_results_and_gradients_are_near_sums_in_float64(n, c, o, h, w, padding):
    x, weight, bias = operands(n, c, o, h, w)
    a, k, b = (
        image(x).requires_grad_(),
        facula.tensor(weight).requires_grad_(),
        facula.tensor(bias).requires_grad_(),
    )
    y = F.conv2d(a, k, b, padding=padding)
    expected = convolution(x, weight, padding) + bias[:, None, None]
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-6, atol=2e-5)
    g = np.random.default_rng(1).standard_normal(y.shape).astype("f")
    y.backward(image(g))
    turned = weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    np.testing.assert_allclose(a.grad.numpy(), convolution(g, turned, 2 - padding), rtol=1e-6, atol=4e-5)
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    taps = np.stack(
        [
            [
                np.einsum("nchw,nohw->oc", padded[:, :, i : i + g.shape[2], j : j + g.shape[3]], g)
                for j in range(3)
            ]
            for i in range(3)
        ]
    ).transpose(2, 3, 0, 1)
    np.testing.assert_allclose(k.grad.numpy(), taps, rtol=1e-5, atol=6e-6 * np.sqrt(g[:, 0].size))
    np.testing.assert_allclose(b.grad.numpy(), g.sum((0, 2, 3), dtype=float), rtol=1e-5, atol=1e-3)


# Larger ones: bfloat16 has faster products of the definition, and needs more tiles for the same gain.
BFLOAT16_SHAPES = [
    (2, 64, 64, 28, 28, 1),
    (3, 48, 80, 33, 35, 1),
    (3, 32, 32, 34, 38, 0),
    (2, 32, 96, 29, 46, 2),
]
HALF_ULP = 2.0**-8  # of bfloat16, relative


def rounded(x):
    return facula.tensor(x).bfloat16().float().numpy()


@pytest.mark.parametrize("n, c, o, h, w, padding", BFLOAT16_SHAPES)
def test_bfloat16_is_rounded_once_from_a_sum_in_float32(n, c, o, h, w, padding):
    x, weight, bias = map(rounded, operands(n, c, o, h, w))
    a, k = image(x).bfloat16().requires_grad_(), facula.tensor(weight).bfloat16().requires_grad_()
    y = F.conv2d(a, k, facula.tensor(bias).bfloat16(), padding=padding)
    assert y.dtype == facula.bfloat16
    expected = convolution(x, weight, padding) + bias[:, None, None]
    np.testing.assert_allclose(y.detach().float().numpy(), expected, rtol=HALF_ULP, atol=2e-5)
    g = rounded(np.random.default_rng(1).standard_normal(y.shape).astype("f"))
    y.backward(image(g).bfloat16())
    turned = weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    np.testing.assert_allclose(
        a.grad.float().numpy(), convolution(g, turned, 2 - padding), rtol=HALF_ULP, atol=4e-5
    )
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    taps = np.stack(
        [
            [
                np.einsum("nchw,nohw->oc", padded[:, :, i : i + g.shape[2], j : j + g.shape[3]], g)
                for j in range(3)
            ]
            for i in range(3)
        ]
    ).transpose(2, 3, 0, 1)
    np.testing.assert_allclose(k.grad.float().numpy(), taps, rtol=HALF_ULP, atol=6e-6 * np.sqrt(g[:, 0].size))


def test_weights_in_the_order_of_their_gradient_give_the_same_bits():
    x, weight, _ = operands(2, 32, 64, 28, 28)
    k = facula.nn.Parameter(facula.tensor(weight))
    optimizer = facula.optim.SGD([k], lr=0.5)
    for _ in range(2):
        y = F.conv2d(image(x).requires_grad_(), k, padding=1)
        y.sum().backward()
        optimizer.step()
    assert facula._C.physical_order(k) != (0, 1, 2, 3)
    with facula.no_grad():
        packed = F.conv2d(image(x), k, padding=1)
        plain = F.conv2d(image(x), facula.tensor(k.detach().numpy().copy()), padding=1)
    assert packed.equal(plain)


# Where a processor multiplies bfloat16 in tiles, oneDNN takes these convolutions, and the bits of a weight's
# gradient depend on its threads.
TILES = "amx_bf16" in Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize(
    "dtype, h, w",
    [
        (facula.float32, 14, 17),
        pytest.param(facula.bfloat16, 28, 32, marks=pytest.mark.skipif(TILES, reason="oneDNN's on AMX")),
    ],
)
def test_bits_do_not_depend_on_threads(dtype, h, w):
    x, weight, bias = operands(3, 64, 128, h, w)
    threads = facula.get_num_threads()
    results = []
    try:
        for n in (1, 2, 5):
            facula.set_num_threads(n)
            k = facula.tensor(weight, dtype=dtype).requires_grad_()
            y = F.conv2d(image(x).to(dtype), k, facula.tensor(bias, dtype=dtype), padding=1)
            y.backward(image(y.detach().float().numpy()).to(dtype))
            results.append((y.detach(), k.grad))
    finally:
        facula.set_num_threads(threads)
    assert all(r.equal(first) for pair in results for r, first in zip(pair, results[0], strict=True))


# ---- values that are not finite, and the size of errors


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("dtype", [facula.float32, facula.bfloat16])
def test_a_value_that_is_not_finite_reaches_its_windows_only(value, dtype):
    x, weight, bias = operands(2, 64, 64, 36, 36)
    x[1, 5, 7, 9] = value
    a = image(x).to(dtype).requires_grad_()
    k, b = facula.tensor(weight, dtype=dtype).requires_grad_(), facula.tensor(bias, dtype=dtype)
    y = F.conv2d(a, k, b, padding=1)
    got = y.detach().float().numpy()
    near = np.zeros_like(got, bool)
    near[1, :, 6:9, 8:11] = True
    clean = x.copy()
    clean[1, 5, 7, 9] = 0
    expected = convolution(clean, weight, 1) + bias[:, None, None]
    tolerance = dict(rtol=1e-6, atol=2e-5) if dtype == facula.float32 else dict(rtol=2e-2, atol=3e-2)
    np.testing.assert_allclose(got[~near], expected[~near], **tolerance)
    if abs(value) == np.inf:
        assert np.isinf(got[near]).all()
        turned = weight[:, 5, ::-1, ::-1] * value
        assert (np.sign(got[1, :, 6:9, 8:11]) == np.sign(turned)).all()
    if value != value:
        assert np.isnan(got[near]).all()


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_gradient_that_is_not_finite_reaches_what_it_multiplies(value):
    x, weight, _ = operands(2, 64, 64, 36, 36)
    a, k = image(x).requires_grad_(), facula.tensor(weight).requires_grad_()
    g = np.random.default_rng(1).standard_normal((2, 64, 36, 36)).astype("f")
    g[0, 3, 20, 21] = value
    F.conv2d(a, k, padding=1).backward(image(g))
    wrong = np.zeros((2, 64, 36, 36), bool)
    wrong[0, :, 19:22, 20:23] = True
    assert np.isfinite(a.grad.numpy()[~wrong]).all() and not np.isfinite(a.grad.numpy()[wrong]).any()
    rows = np.zeros(64, bool)
    rows[3] = True
    assert np.isfinite(k.grad.numpy()[~rows]).all() and not np.isfinite(k.grad.numpy()[rows]).any()
    if value == np.inf:  # each tap met the infinity once
        assert np.isinf(k.grad.numpy()[rows]).all()


def test_a_window_in_the_padding_gives_exactly_nothing():
    x, weight, _ = operands(2, 32, 32, 30, 30)
    y = F.conv2d(image(x), facula.tensor(weight), padding=3).numpy()
    assert (y[:, :, [0, -1]] == 0).all() and (y[..., [0, -1]] == 0).all()


@pytest.mark.parametrize("c, bound", [(32, 2.3), (64, 1.8), (256, 1.2)])
def test_errors_are_those_of_a_sum_in_float32(c, bound):
    """Root mean square, beside one sum over all products in order, of activations after a ReLU."""
    x, weight, _ = operands(2, c, 32, 28, 28)
    x = np.maximum(x, 0)
    exact = convolution(x, weight, 1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    plain = np.zeros(exact.shape, "f")
    for channel in range(c):
        for i in range(3):
            for j in range(3):
                part = padded[:, channel, None, i : i + 28, j : j + 28]
                plain += part * weight[:, channel, i, j, None, None]
    y = F.conv2d(image(x), facula.tensor(weight), padding=1).numpy()
    error, usual = (np.sqrt(np.mean((v - exact) ** 2)) for v in (y, plain))
    assert error < bound * usual, error / usual


def test_kernels_run_in_lanes(tmp_path):
    """A loop that is written for lanes and can't run in them is right, and several times slower."""
    program = (
        "torch, F = facula, facula.nn.functional\n"
        "image = lambda: torch.randn(2, 64, 28, 28).contiguous(memory_format=torch.channels_last)\n"
        "x, g = image().requires_grad_(), image()\n"
        "w, b = torch.randn(64, 64, 3, 3, requires_grad=True), torch.randn(64, requires_grad=True)\n"
        "F.conv2d(x, w, b, padding=1).backward(g)\n"
        "q = torch.randn(1, 2, 64, 32, requires_grad=True)\n"
        "F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()\n"
    )
    text = logged(program, "kernels", FACULA_CACHE_DIR=str(tmp_path), FACULA_SHIPPED_CACHE=str(tmp_path))
    assert "winograd_weight compiled" in text and "winograd_sums compiled" in text
    assert "element by element" not in text
