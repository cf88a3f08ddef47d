"""Products of 8-bit integers by generated kernels: the bits of the library's, and of NumPy's exact sums."""

import numpy as np
import pytest

import facula
from facula import _C as C


@pytest.fixture(autouse=True)
def restored():
    yield
    C.set_setting("products", "")


def both_ways(run):
    """Returns the results of generated kernels, the last ones with a retained pack, and of the library."""
    C.set_setting("products", "generated")
    results = [run() for _ in range(3)]
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
@pytest.mark.parametrize("rows, terms, columns", [(1, 7, 5), (19, 130, 70), (33, 64, 100)])
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
            *ours, library = both_ways(lambda args=args: facula._C.ops._int8_linear(x, w, *args))
            for y in ours:
                assert np.array_equal(bits(y), bits(library))
            sums = (x.numpy().astype("i8") - zero) @ w.numpy().astype("i8").T
            if exact:
                assert np.array_equal(library.numpy(), sums)


GEOMETRIES = {
    "3x3": ((2, 8, 9, 7), (20, 8, 3, 3), 1, 1, 1),
    "channels that fill no word": ((1, 3, 8, 8), (17, 3, 3, 3), 2, 1, 1),
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
        *ours, library = both_ways(run)
        for y in ours:
            assert np.array_equal(bits(y.contiguous()), bits(library.contiguous()))
        if exact:
            want = facula.nn.functional.conv2d(x.double() - 5, w.double(), None, stride, padding, dilation)
            assert facula.equal(library.double(), want)
