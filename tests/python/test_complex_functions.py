"""Elementary functions of complex numbers: values, branch cuts and limits against NumPy, whose functions
follow C99.
"""

import itertools

import numpy as np
import pytest

import facula

NUMPY = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "cos": np.cos, "cosh": np.cosh, "sin": np.sin, "sinh": np.sinh, "tan": np.tan,
    "tanh": np.tanh, "exp": np.exp,
    "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sqrt": np.sqrt, "square": np.square, "abs": np.abs, "angle": np.angle,
    "reciprocal": lambda z: 1 / z, "rsqrt": lambda z: 1 / np.sqrt(z),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)), "sgn": lambda z: z / np.where(z == 0, 1, np.abs(z)),
}  # fmt: skip


def away_from_poles(dtype):
    rng = np.random.default_rng(3)
    z = rng.normal(size=300) * 2 + 1j * rng.normal(size=300) * 2
    return np.concatenate([z, z * 1e-4]).astype(dtype)


@pytest.mark.parametrize("dtype, bound", [("complex64", 4e-6), ("complex128", 4e-14)])
@pytest.mark.parametrize("name", NUMPY)
def test_values_agree_with_numpy(name, dtype, bound):
    z = away_from_poles(dtype)
    got = getattr(facula, name)(facula.tensor(z)).numpy()
    exact = name == "log1p" or name == "expm1"  # NumPy's own are not near 0
    want = NUMPY[name](z.astype("clongdouble" if exact else "complex128"))
    assert got.dtype.itemsize == (z.real if name in ("abs", "angle") else z).dtype.itemsize
    assert np.max(np.abs(got - want) / np.abs(want)) < bound


# On the real and the imaginary axis, with both signs of zero: the sides of every branch cut.
@pytest.mark.parametrize("name", ["acos", "acosh", "asin", "asinh", "atan", "atanh", "sqrt", "log"])
def test_sides_of_branch_cuts_are_told_by_the_zeros_sign(name):
    at = [complex(x, y) for x in (-3.0, -0.5, 0.5, 3.0) for y in (0.0, -0.0)]
    at += [complex(y, x) for x in (-3.0, -0.5, 0.5, 3.0) for y in (0.0, -0.0)]
    z = np.array(at)
    got, want = getattr(facula, name)(facula.tensor(z)).numpy(), NUMPY[name](z)
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-16)
    assert np.array_equal(np.signbit(got.imag), np.signbit(want.imag))


@pytest.mark.parametrize(
    "name", ["acos", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tanh", "exp", "sqrt", "log"]
)
def test_infinities_and_nan_give_the_limits_of_c99(name):
    inf, nan = float("inf"), float("nan")
    z = np.array(
        [complex(a, b) for a, b in itertools.product([0.0, -0.0, 1.0, -1.0, inf, -inf, nan], repeat=2)]
    )
    with np.errstate(all="ignore"):
        got, want = getattr(facula, name)(facula.tensor(z)).numpy(), NUMPY[name](z)
    for part in ("real", "imag"):
        a, b = getattr(got, part), getattr(want, part)
        other = getattr(want, "imag" if part == "real" else "real")
        free = np.isnan(other) | np.isnan(z)  # there C99 leaves the sign open
        a, b = np.where(free, np.abs(a), a), np.where(free, np.abs(b), b)
        np.testing.assert_allclose(a, b, rtol=1e-14, err_msg=f"{name} {part} at {z}")


@pytest.mark.parametrize("name", [n for n in NUMPY if n not in ("abs", "angle", "sgn")])
def test_gradients_of_holomorphic_functions_are_conjugated_derivatives(name):
    z = away_from_poles("complex128")[:50]
    x = facula.tensor(z, requires_grad=True)
    g = 0.3 + 0.7j
    y = getattr(facula, name)(x)
    y.backward(facula.full_like(y.detach(), g))
    step = 1e-6
    slope = (NUMPY[name](z + step) - NUMPY[name](z - step)) / (2 * step)
    np.testing.assert_allclose(x.grad.numpy(), g * np.conj(slope), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["abs", "angle"])
def test_gradients_of_real_valued_functions_point_uphill(name):
    z = away_from_poles("complex128")[:50]
    x = facula.tensor(z, requires_grad=True)
    getattr(facula, name)(x).sum().backward()
    f, step = NUMPY[name], 1e-6
    along, across = (
        (f(z + step) - f(z - step)) / (2 * step),
        (f(z + 1j * step) - f(z - 1j * step)) / (2 * step),
    )
    np.testing.assert_allclose(x.grad.numpy(), along + 1j * across, rtol=1e-6, atol=1e-8)


def test_reductions_over_parts_of_an_intermediate_see_its_values():
    rng = np.random.default_rng(5)
    z = rng.normal(size=(33, 65)) + 1j * rng.normal(size=(33, 65))
    x = facula.tensor(z)
    np.testing.assert_allclose(x.var(1).numpy(), z.var(1, ddof=1), rtol=1e-13)
    np.testing.assert_allclose(x.std(0).numpy(), z.std(0, ddof=1), rtol=1e-13)
    np.testing.assert_allclose(x.logsumexp(1).numpy(), np.log(np.exp(z).sum(1)), rtol=1e-12)
    assert x.var().dtype == facula.float64
