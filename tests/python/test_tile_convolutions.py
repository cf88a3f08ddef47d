"""Convolutions as products by tiles, whose instructions a reference plays where the processor has none."""

import facula.nn.functional as F
import numpy as np
import pytest

import facula
from facula import _C as C


@pytest.fixture(autouse=True)
def tiles():
    C.set_setting("products", "tiles")
    yield
    C.set_setting("products", "")
    facula.set_float32_matmul_precision("highest")


def drawn(*sizes, seed=0):
    return np.random.default_rng(seed + sum(sizes)).standard_normal(sizes).astype("f")


CASES = {
    "3x3": ((2, 5, 9, 8), (7, 5, 3, 3), 1, 1, 1),
    "1x1": ((1, 40, 6, 7), (33, 40, 1, 1), 1, 0, 1),
    "stride": ((2, 3, 11, 10), (6, 3, 3, 3), 2, 1, 1),
    "uneven stride": ((1, 4, 12, 9), (5, 4, 3, 2), (3, 2), (0, 1), 1),
    "dilation": ((1, 35, 9, 9), (4, 35, 3, 3), 1, 2, 2),
    "taps in several blocks": ((1, 70, 5, 5), (36, 70, 4, 4), 1, 2, 1),
}


def gradients(x, w, b, stride, padding, dilation, kind):
    """Returns the result of a convolution and the gradients of its square."""
    x, w, b = (facula.tensor(t).to(kind).requires_grad_() for t in (x, w, b))
    y = F.conv2d(x, w, b, stride, padding, dilation)
    (y * y).sum().backward()
    return [t.detach().double().numpy() for t in (y, x.grad, w.grad, b.grad)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_passes_are_those_of_float64(case):
    image, kernel, *geometry = case
    x, w, b = drawn(*image), drawn(*kernel, seed=1), drawn(kernel[0], seed=2)
    got = gradients(x, w, b, *geometry, facula.float32)
    want = gradients(x.astype("d"), w.astype("d"), b.astype("d"), *geometry, facula.float64)
    for y, z in zip(got, want, strict=True):
        np.testing.assert_allclose(y, z, rtol=2e-5, atol=2e-5 * np.abs(z).max())


@pytest.mark.parametrize("precision, error", [("highest", 4e-7), ("high", 3e-5), ("medium", 1e-2)])
def test_parts_follow_the_precision(precision, error):
    facula.set_float32_matmul_precision(precision)
    x, w = drawn(1, 32, 6, 6), drawn(32, 32, 3, 3, seed=1)
    y = F.conv2d(facula.tensor(x), facula.tensor(w), padding=1)
    want = F.conv2d(facula.tensor(x).double(), facula.tensor(w).double(), padding=1)
    size = F.conv2d(facula.tensor(x).double().abs(), facula.tensor(w).double().abs(), padding=1)
    assert float(((y.double() - want).abs() / size).max()) < error
    if precision != "highest":
        assert float(((y.double() - want).abs() / size).max()) > error / 100


@pytest.mark.parametrize("case", list(CASES.values())[:3], ids=list(CASES)[:3])
def test_numbers_of_16_bits_are_rounded_once(case):
    image, kernel, *geometry = case
    x, w, b = (
        facula.tensor(t).bfloat16() for t in (drawn(*image), drawn(*kernel, seed=1), drawn(kernel[0], seed=2))
    )
    y = F.conv2d(x, w, b, *geometry)
    want = F.conv2d(x.double(), w.double(), b.double(), *geometry)
    assert y.dtype == facula.bfloat16
    np.testing.assert_allclose(y.double().numpy(), want.numpy(), rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
def test_bits_do_not_depend_on_layout_or_threads(last):
    x, w = facula.tensor(drawn(2, 40, 9, 9)), facula.tensor(drawn(36, 40, 3, 3, seed=1))
    want = F.conv2d(x, w, padding=1)
    if last:
        x, w = (t.to(memory_format=facula.channels_last) for t in (x, w))
    threads = facula.get_num_threads()
    try:
        for n in (1, 3):
            facula.set_num_threads(n)
            y = F.conv2d(x, w, padding=1)
            assert np.array_equal(y.contiguous().numpy().view("i4"), want.numpy().view("i4"))
    finally:
        facula.set_num_threads(threads)


def test_numbers_that_parts_do_not_hold_give_the_results_of_float32():
    x, w = drawn(1, 8, 6, 6), drawn(5, 8, 3, 3, seed=1)
    x[0, 3, 2, 2], x[0, 1, 5, 5] = np.inf, np.nan
    w[2] = 0
    w[2, 0, 0, 0] = 3.4e38  # one product a sum, which float32 may not hold
    x[0, 0, 0, :] = 1e-39
    y = F.conv2d(facula.tensor(x), facula.tensor(w), padding=1).numpy()
    want = F.conv2d(facula.tensor(x).double(), facula.tensor(w).double(), padding=1).float().numpy()
    assert np.array_equal(np.isnan(y), np.isnan(want)) and np.array_equal(np.isinf(y), np.isinf(want))
    finite = np.isfinite(want)
    np.testing.assert_allclose(y[finite], want[finite], rtol=1e-4, atol=1e-5)
