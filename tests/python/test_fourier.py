"""Fourier transforms beside NumPy's in double precision: every way in which lines are computed; threads."""

import itertools
import os
import subprocess
import sys

import numpy
import pytest

import facula

RELATIVE = {"complex64": 1e-6, "complex128": 4e-15}  # of the largest number
REAL = {"complex64": "float32", "complex128": "float64"}


def numbers(dtype, *shape, seed=0):
    generator = numpy.random.default_rng(seed)
    return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(dtype)


def check(result, expected, dtype):
    assert result.shape == expected.shape
    assert numpy.abs(result.numpy() - expected).max() <= RELATIVE[dtype] * numpy.abs(expected).max()


def transforms(x, z, xs, zs, dim, dtype):
    """All kinds along `dim` of real xs and complex zs, which hold the numbers of x and z."""
    n = z.shape[dim]
    for norm in ("backward", "ortho", "forward"):
        check(facula.fft.fft(zs, dim=dim, norm=norm), numpy.fft.fft(z, axis=dim, norm=norm), dtype)
        check(facula.fft.ifft(zs, dim=dim, norm=norm), numpy.fft.ifft(z, axis=dim, norm=norm), dtype)
        check(facula.fft.rfft(xs, dim=dim, norm=norm), numpy.fft.rfft(x, axis=dim, norm=norm), dtype)
        for points in {max(2 * n - 2, 1), 2 * n - 1}:
            expected = numpy.fft.irfft(z, points, axis=dim, norm=norm)
            check(facula.fft.irfft(zs, points, dim=dim, norm=norm), expected, dtype)


# Lines alone and in blocks that are full and not, of lengths with and without large factors, long ones as a
# matrix with and without remainders and by convolution.
SHAPES = [
    *itertools.product((1, 2, 3, 4, 8, 9, 17), (1, 2, 3, 8, 15, 16, 67, 300, 1009)),
    *itertools.product(
        (1, 20), (5, 7, 11, 17, 32, 35, 64, 77, 105, 128, 202, 256, 257, 289, 512, 630, 768, 1007, 2401)
    ),
    *itertools.product((1, 5), (2048, 2049, 4099, 8192, 9999, 16385, 20011, 32768)),
    (1, 100003),
    (1, 2 * 65537),
    (1, 1 << 18),
]


@pytest.mark.parametrize("dtype", RELATIVE)
@pytest.mark.parametrize("lines, points", SHAPES)
def test_lines_of_any_length_and_number(lines, points, dtype):
    z = numbers(dtype, lines, points)
    x, wide = z.real.copy(), z.astype("complex128")
    transforms(wide.real, wide, facula.tensor(x), facula.tensor(z), 1, dtype)


@pytest.mark.skipif("FACULA_CPU_CAPABILITY" in os.environ, reason="runs the tests again with another")
def test_the_same_in_registers_of_avx2():
    environment = dict(os.environ, FACULA_CPU_CAPABILITY="avx2")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "any_length or several or bits",
    ]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]


@pytest.mark.parametrize("dtype", RELATIVE)
@pytest.mark.parametrize("shape", [(9, 5, 8), (16, 16, 16), (3, 40, 7), (2100, 2, 9), (4, 1, 12)])
def test_all_dimensions_of_all_layouts(shape, dtype):
    z = numbers(dtype, *shape)
    for order in itertools.permutations(range(3)):
        for every in (1, 2, 3):
            views = z.transpose(order)[:, ::every, ::every]
            strided = facula.tensor(z).permute(*order)[:, ::every, ::every]
            reals = facula.tensor(z.real.copy()).permute(*order)[:, ::every, ::every]
            wide = views.astype("complex128")
            for dim in range(3):
                check(facula.fft.fft(strided, dim=dim), numpy.fft.fft(wide, axis=dim), dtype)
                check(facula.fft.rfft(reals, dim=dim), numpy.fft.rfft(wide.real, axis=dim), dtype)
                check(facula.fft.irfft(strided, 11, dim=dim), numpy.fft.irfft(wide, 11, axis=dim), dtype)


@pytest.mark.parametrize("dtype", RELATIVE)
@pytest.mark.parametrize("shape", [(64, 96), (33, 50, 8), (4, 2050, 3), (2, 3, 4, 5)])
def test_several_dimensions(shape, dtype):
    z = numbers(dtype, *shape)
    wide = z.astype("complex128")
    check(facula.fft.fftn(facula.tensor(z)), numpy.fft.fftn(wide), dtype)
    check(facula.fft.ifft2(facula.tensor(z)), numpy.fft.ifft2(wide), dtype)
    check(facula.fft.rfftn(facula.tensor(z.real.copy())), numpy.fft.rfftn(wide.real), dtype)
    spectrum = numpy.fft.rfftn(wide.real).astype(dtype)
    check(facula.fft.irfftn(facula.tensor(spectrum), shape), wide.real, dtype)


def test_imaginary_parts_that_a_real_signal_has_not_are_ignored():
    for lines, points in ((1, 8), (1, 4096), (9, 8), (9, 7), (5, 20000), (1, 4099)):
        z = numbers("complex128", lines, points // 2 + 1)
        other = z.copy()
        other[:, 0] += 3j
        if points % 2 == 0:
            other[:, -1] += 5j
        same = [facula.fft.irfft(facula.tensor(y), points).tolist() for y in (z, other)]
        assert same[0] == same[1]
        spectrum = facula.fft.rfft(facula.tensor(z.real.copy()), points)
        assert (spectrum[:, 0].imag == 0).all()
        if points % 2 == 0:
            assert (spectrum[:, -1].imag == 0).all()


def test_a_line_with_nan_or_infinity_leaves_others_alone():
    for lines, points in ((2, 8), (9, 64), (9, 67), (3, 16385), (12, 1009)):
        z = numbers("complex64", lines, points)
        expected = facula.fft.fft(facula.tensor(z))
        for bad in (numpy.nan, numpy.inf, -numpy.inf):
            y = z.copy()
            y[1, 3] = bad
            result = facula.fft.fft(facula.tensor(y))
            assert not result[1].abs().isfinite().any()
            keep = [k for k in range(lines) if k != 1]
            assert (result[keep] == expected[keep]).all()


def test_bits_are_the_same_for_any_number_of_threads():
    cases = [
        (1021, 512),
        (7, 300),
        (3, 40000),
        (1, 100003),
        (1, 1 << 17),
        (50, 50, 50),
        (13, 1009),
        (1, 65537),
        (65, 1024),
        (40, 1007),
    ]
    before = facula.get_num_threads()
    try:
        for shape in cases:
            z = facula.tensor(numbers("complex64", *shape))
            results = []
            for threads in (1, 2, 3):
                facula.set_num_threads(threads)
                results.append([])
                for d in (0, -1):
                    found = (
                        facula.fft.fft(z, dim=d),
                        facula.fft.rfft(z.real, dim=d),
                        facula.fft.irfft(z, 2 * z.shape[d] - 1, dim=d),
                    )
                    results[-1] += [x.numpy().tobytes() for x in found]
            assert all(r == results[0] for r in results)
    finally:
        facula.set_num_threads(before)
