"""Gradients of pools with a stride, against sums over windows. Rows are long enough for lanes, where
one computes as many neighbours as the stride, or no whole number of them."""

import numpy as np
import pytest
from facula.program import trace

import facula as T

F = T.nn.functional

# Kernel, stride, padding, dilation; rows of 32 and 36 are whole for strides of 2 and 4, 33 for 3.
WINDOWS = [
    (3, 2, 1, 1),
    (2, 2, 0, 1),
    (3, 3, 1, 1),
    (5, 2, 2, 1),
    (5, 4, 0, 1),
    (2, 3, 0, 1),
    (3, 2, 0, 2),
    (3, 1, 1, 1),
]
SIZES = [(7, 32), (6, 33), (5, 36), (4, 37)]


def expected_of_max(x, g, kernel, stride, padding, dilation):
    padded = np.full((x.shape[0], x.shape[1] + 2 * padding, x.shape[2] + 2 * padding), -np.inf)
    padded[:, padding : padding + x.shape[1], padding : padding + x.shape[2]] = x
    sums = np.zeros(padded.shape)
    for n, i, j in np.ndindex(*g.shape):
        rows = i * stride + dilation * np.arange(kernel)
        columns = j * stride + dilation * np.arange(kernel)
        window = padded[n][np.ix_(rows, columns)]
        nans = np.flatnonzero(np.isnan(window))  # the last of them is taken, else the first of the largest
        a, b = np.unravel_index(nans[-1] if len(nans) else np.argmax(window), window.shape)
        sums[n, rows[a], columns[b]] += g[n, i, j]
    return sums[:, padding : padding + x.shape[1], padding : padding + x.shape[2]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_max_pool2d(window, dtype):
    kernel, stride, padding, dilation = window
    rng = np.random.default_rng(kernel)
    for h, w in SIZES:
        if (kernel - 1) * dilation >= h + 2 * padding:
            continue
        # Small whole numbers: sums are exact in every dtype, and windows hold ties.
        x = T.tensor(rng.integers(-8, 8, (3, h, w))).to(getattr(T, dtype)).requires_grad_()
        y = F.max_pool2d(x, kernel, stride, padding, dilation)
        g = rng.integers(-8, 8, y.shape)
        y.backward(T.tensor(g).to(x.dtype))
        expected = expected_of_max(x.detach().double().numpy(), g, *window)
        np.testing.assert_array_equal(x.grad.double().numpy(), expected)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_max_pool2d_of_special_values(special):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 8, 32))
    x[0, 3, 4] = x[0, 3, 5] = x[1, 0, 0] = x[1, 7, 31] = special
    a = T.tensor(x).requires_grad_()
    y = F.max_pool2d(a, 3, 2, 1)
    g = rng.integers(-8, 8, y.shape).astype(float)
    y.backward(T.tensor(g))
    np.testing.assert_array_equal(a.grad.numpy(), expected_of_max(x, g, 3, 2, 1, 1))
    g[:] = special  # nothing but the largest elements meets it
    a.grad = None
    F.max_pool2d(a, 3, 2, 1).backward(T.tensor(g))
    taken = expected_of_max(x, np.ones(g.shape), 3, 2, 1, 1) > 0
    assert (a.grad.numpy()[~taken] == 0).all() and not np.isfinite(a.grad.numpy()[taken]).any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("window", [w for w in WINDOWS if w[3] == 1 and w[2] * 2 <= w[0]], ids=str)
def test_avg_pool2d(window, dtype):
    kernel, stride, padding, _ = window
    rng = np.random.default_rng(kernel)
    for h, w in SIZES:
        if kernel > h + 2 * padding:
            continue
        x = T.zeros(3, h, w, dtype=getattr(T, dtype), requires_grad=True)
        y = F.avg_pool2d(x, kernel, stride, padding, divisor_override=1)
        g = rng.integers(-8, 8, y.shape)
        y.backward(T.tensor(g).to(x.dtype))
        sums = np.zeros((3, h + 2 * padding, w + 2 * padding))
        for n, i, j in np.ndindex(*g.shape):
            sums[n, i * stride : i * stride + kernel, j * stride : j * stride + kernel] += g[n, i, j]
        inside = sums[:, padding : padding + h, padding : padding + w]
        np.testing.assert_array_equal(x.grad.double().numpy(), inside)


def test_neighbours_are_written_where_they_are_read():
    """In place, by a kernel that asks for the remainder of its index: what one reads, no neighbour wrote."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 2, 64))
    for by in (2, 3, 4):
        a = T.tensor(x)

        def turn(a, by=by):
            a.copy_(T.where((T.arange(64) % by == 0), a, -a))

        index = T.arange(64)
        swapped = T.where((index % by == 0), a, -a)
        trace(turn, a.clone())(a)
        assert T.equal(a, swapped)
        np.testing.assert_array_equal(a.numpy(), np.where(np.arange(64) % by == 0, x, -x))
