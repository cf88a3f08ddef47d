"""Products of 8-bit integers by generated kernels, by vectors and by a matrix unit (or its reference): they
have the bits of the library's, and of NumPy's exact sums.
"""

import numpy as np
import pytest

import facula
from facula import _C as C


@pytest.fixture(autouse=True)
def restored():
    yield
    C.set_setting("products", "")


def all_ways(run):
    """Returns the results of both kinds of generated kernels, the last ones with a retained pack, and
    those of the library.
    """
    results = []
    for way in ("generated", "tiles"):
        C.set_setting("products", way)
        results += [run() for _ in range(3)]
    C.set_setting("products", "library")
    return [*results, run()]


def integers(rng, dtype, *sizes):
    low = 0 if dtype == facula.uint8 else -128
    return facula.tensor(rng.integers(low, low + 256, sizes).tolist(), dtype=dtype)


def bits(t):
    return t.numpy().view("i4") if t.dtype == facula.float32 else t.numpy()


RESULTS = [facula.uint8, facula.int8, facula.float32, facula.int32]


@pytest.mark.parametrize("dtype", [facula.uint8, facula.int8])
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("rows, terms, columns", [(1, 7, 5), (19, 130, 70), (33, 64, 100), (3, 641, 33)])
def test_linear_layers_have_the_bits_of_the_library(dtype, result, rows, terms, columns):
    rng = np.random.default_rng(rows)
    x, w = integers(rng, dtype, rows, terms), integers(rng, facula.int8, columns, terms)
    scale = facula.tensor((rng.random(columns) * 1e-2).tolist())
    bias = facula.tensor(rng.standard_normal(columns).astype("f").tolist())
    exact = result == facula.int32
    zero = 11 if dtype == facula.uint8 else -3
    for relu in [False] if exact else [False, True]:
        for b in [None] if exact else [None, bias]:
            args = (None if exact else scale, b, zero, 0 if exact else 4, relu, result)
            *ours, library = all_ways(lambda args=args: facula._C.ops._int8_linear(x, w, *args))
            for y in ours:
                assert np.array_equal(bits(y), bits(library))
            sums = (x.numpy().astype("i8") - zero) @ w.numpy().astype("i8").T
            if exact:
                assert np.array_equal(library.numpy(), sums)


@pytest.mark.parametrize("way", ["generated", "tiles", "library"])
@pytest.mark.parametrize("rows, terms, columns", [(0, 5, 4), (3, 0, 4), (3, 5, 0)])
def test_empty_products_are_empty_or_the_bias(way, rows, terms, columns):
    C.set_setting("products", way)
    x, w = facula.ones(rows, terms, dtype=facula.uint8), facula.ones(columns, terms, dtype=facula.int8)
    scale, bias = facula.full((columns,), 0.5), facula.full((columns,), 2.0)
    y = facula._C.ops._int8_linear(x, w, scale, bias, 0, 1, False, facula.uint8)
    assert y.shape == (rows, columns)
    assert terms or np.array_equal(y.numpy(), np.full((rows, columns), 3))


@pytest.mark.parametrize("extreme", ["least", "most"])
def test_sums_of_the_largest_products_are_exact(extreme):
    for dtype in (facula.uint8, facula.int8):
        least, most = (0, 255) if dtype == facula.uint8 else (-128, 127)
        x = facula.full((40, 700), most, dtype=dtype)
        w = facula.full((50, 700), -128 if extreme == "least" else 127, dtype=facula.int8)
        for zero in (least, most):
            args = (None, None, zero, 0, False, facula.int32)
            want = 700 * (most - zero) * w[0, 0].item()
            for y in all_ways(lambda x=x, w=w, args=args: facula._C.ops._int8_linear(x, w, *args)):
                assert np.array_equal(y.numpy(), np.full((40, 50), want))


def test_strided_operands_are_read_where_they_lie():
    rng = np.random.default_rng(1)
    x, y = integers(rng, facula.int8, 70, 90), integers(rng, facula.int8, 140, 99)
    for a, b in (
        (x[::2, 1:71], y[:70, ::3]),
        (x.t()[:, 3:], y.t()[1:68, 5:]),
        (x[3:, ::2], y[::2, 2:47].t()[:, :45].t()[:45]),
    ):
        want = a.numpy().astype("i8") @ b.numpy().astype("i8")
        for sums in all_ways(lambda a=a, b=b: facula._int_mm(a, b)):
            assert np.array_equal(sums.numpy(), want)


GEOMETRIES = {
    "3x3": ((2, 8, 9, 7), (20, 8, 3, 3), 1, 1, 1),
    "channels that fill no word": ((1, 3, 8, 8), (17, 3, 3, 3), 2, 1, 1),
    "whole steps of a matrix unit": ((1, 128, 7, 6), (35, 128, 3, 3), 1, 1, 1),
    "1x1": ((2, 33, 5, 6), (40, 33, 1, 1), 1, 0, 1),
    "dilation": ((1, 6, 9, 9), (5, 6, 3, 2), (1, 2), (2, 0), (2, 1)),
}


@pytest.mark.parametrize("dtype", [facula.uint8, facula.int8])
@pytest.mark.parametrize("case", GEOMETRIES.values(), ids=GEOMETRIES)
def test_convolutions_have_the_bits_of_the_library(dtype, case):
    image, kernel, stride, padding, dilation = case
    rng = np.random.default_rng(sum(image))
    x, w = integers(rng, dtype, *image), integers(rng, facula.int8, *kernel)
    scale = facula.tensor((rng.random(kernel[0]) * 1e-2).tolist())
    bias = facula.tensor(rng.standard_normal(kernel[0]).astype("f").tolist())
    for result in RESULTS:
        exact = result == facula.int32
        args = (None if exact else scale, None if exact else bias, 5, 0 if exact else 9, not exact, result)
        run = lambda args=args: facula._C.ops._int8_conv2d(x, w, *args, stride, padding, dilation, 1)  # noqa: E731
        *ours, library = all_ways(run)
        for y in ours:
            assert np.array_equal(bits(y.contiguous()), bits(library.contiguous()))
        if exact:
            want = facula.nn.functional.conv2d(x.double() - 5, w.double(), None, stride, padding, dilation)
            assert facula.equal(library.double(), want)
