"""Ways that only some sizes take, compared with NumPy: reversed vectors, rows put together, the few largest, columns."""

import numpy as np
import pytest

import facula
import facula.nn.functional as F

DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool"]


def numbers(shape, dtype, most=40):
    x = np.random.default_rng(len(shape)).integers(0, most, shape)
    return (x > most // 2) if dtype == "bool" else x.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 16, 33, 130])
def test_flip_reads_vectors_backwards(dtype, n):
    x = numbers((3, n), dtype)
    for dims in ([0], [1], [0, 1]):
        assert np.array_equal(facula.from_numpy(x).flip(dims).numpy(), np.flip(x, dims))


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("sizes", [(1, 3), (40, 5), (16, 16, 70)])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_cat_joins_rows_of_every_length(dtype, sizes, dim):
    pieces = []
    for n in sizes:
        shape = [6, 5, 4]
        shape[dim] = n
        pieces.append(numbers(tuple(shape), dtype))
    given = [facula.from_numpy(p) for p in pieces]
    given[1] = facula.from_numpy(np.ascontiguousarray(pieces[1].T)).permute(2, 1, 0)
    joined = facula.cat(given, dim)
    assert np.array_equal(joined.numpy(), np.concatenate(pieces, dim))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8"])
@pytest.mark.parametrize("n", [1, 8, 64, 65, 1000])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_takes_the_first_of_equal_ones(dtype, n, largest):
    x = numbers((4, n), dtype, 1000)
    if dtype.startswith("float"):
        x[0, ::3] = np.nan
        x[1, ::2] = -0.0
        x[2] = -x[2]
        x[3, : n // 2] = np.inf
    order = np.argsort(-x.astype(np.float64) if largest else x.astype(np.float64), axis=1, kind="stable")
    if largest and dtype.startswith("float"):  # NaN counts as the largest, NumPy puts it last
        order = np.stack([np.concatenate([np.flatnonzero(np.isnan(r)), [i for i in o if not np.isnan(r[i])]]) for r, o in zip(x, order)]).astype(np.int64)
    for k in {0, 1, min(5, n), n // 9, n // 2, n}:
        values, indices = facula.from_numpy(x).topk(k, 1, largest)
        assert np.array_equal(indices.numpy(), order[:, :k])
        assert np.array_equal(values.numpy(), np.take_along_axis(x, order[:, :k], 1), equal_nan=dtype.startswith("float"))


@pytest.mark.parametrize("rows, columns", [(3, 5), (100, 512), (196, 512), (300, 1000), (1024, 64), (70000, 3)])
def test_columns_are_normalised_as_rows_are(rows, columns):
    x = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    down, along = facula.from_numpy(x), facula.from_numpy(np.ascontiguousarray(x.T)).t()
    for f in (lambda t: facula.softmax(t, 0), lambda t: facula.log_softmax(t, 0), lambda t: t - t.mean(0),
              lambda t: F.batch_norm(t, None, None, training=True)):
        np.testing.assert_allclose(f(down).numpy(), f(along).numpy(), rtol=2e-5, atol=1e-6)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(0))
    np.testing.assert_allclose(facula.softmax(down, 0).numpy(), e / e.sum(0), rtol=1e-5, atol=1e-9)
    want = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5)
    np.testing.assert_allclose(F.batch_norm(down, None, None, training=True).numpy(), want, rtol=1e-4, atol=1e-5)


def test_running_statistics_need_one_kernel_for_every_batch_size():
    mean, var, expected = facula.zeros(4), facula.ones(4), [np.zeros(4), np.ones(4)]
    for n in (2, 3, 11):
        x = np.random.default_rng(n).standard_normal((n, 4, 5))
        F.batch_norm(facula.tensor(x, dtype=facula.float32), mean, var, training=True, momentum=0.3)
        expected = [0.7 * expected[0] + 0.3 * x.mean((0, 2)), 0.7 * expected[1] + 0.3 * x.var((0, 2), ddof=0) * n * 5 / (n * 5 - 1)]
    np.testing.assert_allclose(mean.numpy(), expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var.numpy(), expected[1], rtol=1e-5)
