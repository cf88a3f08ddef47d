"""Unique elements and slices, and the first of each run, beside NumPy."""

import math

import numpy as np
import pytest

import facula as F

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "uint8", "bool")


def some(dtype, *shape):
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 5, shape)
    return F.tensor(values.astype(dtype)), values.astype(dtype)


def runs(values):
    """Where runs of equal slices begin, the run of each slice, and the runs' lengths."""
    rows = values.reshape(len(values), math.prod(values.shape[1:]))
    changes = np.concatenate([[True], (rows[1:] != rows[:-1]).any(1)])[: len(values)]
    starts = np.flatnonzero(changes)
    return starts, np.cumsum(changes) - 1, np.diff(starts, append=len(values))


def same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b, strict=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (1,), (0,), (300, 251), (3, 4, 5)])
def test_different_elements_are_as_numpys(dtype, shape):
    x, values = some(dtype, *shape)
    same(
        F.unique(x, return_inverse=True, return_counts=True),
        np.unique(values, return_inverse=True, return_counts=True),
    )
    same([F.unique(x)], [np.unique(values)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (1,), (0,), (70000,), (3, 4, 5)])
def test_runs_are_as_numpys(dtype, shape):
    x, values = some(dtype, *shape)
    starts, inverse, counts = runs(values.reshape(-1))
    firsts = values.reshape(-1)[starts]
    same(F.unique_consecutive(x, True, True), (firsts, inverse.reshape(shape), counts))
    same([F.unique_consecutive(x)], [firsts])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_slices_are_as_numpys(dtype, dim):
    x, values = some(dtype, 9, 2, 9)
    x, values = x % 2 if dtype != "bool" else x, values % 2 if dtype != "bool" else values
    same(
        F.unique(x, return_inverse=True, return_counts=True, dim=dim),
        np.unique(values, return_inverse=True, return_counts=True, axis=dim),
    )
    rows = np.moveaxis(values, dim, 0)
    starts, inverse, counts = runs(rows)
    same(F.unique_consecutive(x, True, True, dim), (np.moveaxis(rows[starts], 0, dim), inverse, counts))


def test_nan_is_no_other_numbers_equal_and_zeros_are():
    x = F.tensor([0.0, -0.0, float("nan"), float("nan"), 1.0, 1.0])
    assert F.unique_consecutive(x, return_counts=True)[1].tolist() == [2, 1, 1, 2]
    assert F.unique(x, return_counts=True)[1].tolist() == [2, 2, 1, 1]
    z = F.tensor([1 + 2j, 1 + 2j, 1 - 2j])
    assert F.unique_consecutive(z).tolist() == [1 + 2j, 1 - 2j]


def test_all_elements_different_or_all_alike_of_several_pieces():
    n = 100003
    assert F.unique_consecutive(F.arange(n)).tolist() == list(range(n))
    values, counts = F.unique_consecutive(F.zeros(n, 2), return_counts=True)
    assert values.tolist() == [0.0] and counts.tolist() == [2 * n]


def test_a_view_is_taken_in_its_own_order():
    x = F.tensor([[1, 1, 2], [1, 3, 2]])
    assert F.unique_consecutive(x.t()).tolist() == [1, 3, 2]
    assert F.unique_consecutive(x, dim=1).tolist() == [[1, 1, 2], [1, 3, 2]]
    assert F.unique_consecutive(F.zeros(0, 3), dim=0).shape == (0, 3)
