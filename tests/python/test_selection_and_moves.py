"""Ways that only some sizes take, compared with NumPy: reversed vectors, rows put together, the few
largest, columns.
"""

import json

import facula.nn.functional as F
import numpy as np
import pytest
from support import recording, ties

import facula

DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool"]


def numbers(shape, dtype, most=40):
    x = np.random.default_rng(len(shape)).integers(0, most, shape)
    return (x > most // 2) if dtype == "bool" else x.astype(dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
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


@pytest.mark.parametrize("columns", [255, 256, 257, 1600])
def test_rows_are_added_where_indices_say_whatever_their_width(columns):
    random = np.random.default_rng(0)
    source, index = random.integers(-9, 9, (300, columns)).astype(np.float32), random.integers(0, 40, 300)
    want = np.zeros((40, columns), np.float32)
    np.add.at(want, index, source)
    got = facula.zeros(40, columns)
    assert facula.equal(got.index_add(0, facula.tensor(index), facula.tensor(source)), facula.tensor(want))
    got.index_add_(0, facula.tensor(index), facula.tensor(source))
    assert facula.equal(got, facula.tensor(want))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8"])
@pytest.mark.parametrize("n", [1, 8, 64, 65, 1000])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_takes_the_largest_with_nan_above_all(dtype, n, largest):
    x = numbers((4, n), dtype, 1000)
    if dtype.startswith("float"):
        x[0, ::3] = np.nan
        x[1, ::2] = -0.0
        x[2] = -x[2]
        x[3, : n // 2] = np.inf
    ordered = np.sort(x, axis=1)[:, :: -1 if largest else 1]  # NaN as the largest
    for k in {0, 1, min(5, n), n // 9, n // 2, n}:
        values, indices = facula.from_numpy(x).topk(k, 1, largest)
        nan = dtype.startswith("float")
        assert np.array_equal(values.numpy(), ordered[:, :k], equal_nan=nan)
        assert np.array_equal(values.numpy(), np.take_along_axis(x, indices.numpy(), 1), equal_nan=nan)
        assert all(len(set(row)) == k for row in indices.tolist())


@pytest.mark.parametrize("dtype", ties.DTYPES)
def test_topk_and_kthvalue_take_those_of_equal_elements_that_the_peer_takes(dtype):
    answers = [json.loads(row) for row in recording.read("ties.jsonl").splitlines()]
    of_dtype = [row[1:] for row in answers if row[0] == dtype]
    assert [tuple(row[:3]) for row in of_dtype] == list(ties.cases(dtype))
    assert [row for row in of_dtype if ties.picks(facula, dtype, *row[:3]) != row[3]] == []


def test_topk_takes_the_same_of_equal_elements_in_every_layout():
    x = ties.line(facula, "float32", 6000, 5).reshape(2, 3, 1000)
    for k in (10, 100, 999):
        alone = facula.stack([row.topk(k)[1] for row in x.reshape(6, 1000)]).reshape(2, 3, k)
        assert facula.equal(x.topk(k)[1], alone)
        assert facula.equal(x.transpose(0, 2).contiguous().topk(k, 0)[1], alone.transpose(0, 2))


@pytest.mark.parametrize(
    "rows, columns", [(3, 5), (100, 512), (196, 512), (300, 1000), (1024, 64), (70000, 3)]
)
def test_columns_are_normalised_as_rows_are(rows, columns):
    x = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    down, along = facula.from_numpy(x), facula.from_numpy(np.ascontiguousarray(x.T)).t()
    for f in (
        lambda t: facula.softmax(t, 0),
        lambda t: facula.log_softmax(t, 0),
        lambda t: t - t.mean(0),
        lambda t: F.batch_norm(t, None, None, training=True),
    ):
        np.testing.assert_allclose(f(down).numpy(), f(along).numpy(), rtol=2e-5, atol=1e-6)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(0))
    np.testing.assert_allclose(facula.softmax(down, 0).numpy(), e / e.sum(0), rtol=1e-5, atol=1e-9)
    want = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5)
    np.testing.assert_allclose(
        F.batch_norm(down, None, None, training=True).numpy(), want, rtol=1e-4, atol=1e-5
    )


def test_running_statistics_follow_batches_of_every_size():
    mean, var, expected = facula.zeros(4), facula.ones(4), [np.zeros(4), np.ones(4)]
    for n in (2, 3, 11):
        x = np.random.default_rng(n).standard_normal((n, 4, 5))
        F.batch_norm(facula.tensor(x, dtype=facula.float32), mean, var, training=True, momentum=0.3)
        expected = [
            0.7 * expected[0] + 0.3 * x.mean((0, 2)),
            0.7 * expected[1] + 0.3 * x.var((0, 2), ddof=0) * n * 5 / (n * 5 - 1),
        ]
    np.testing.assert_allclose(mean.numpy(), expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var.numpy(), expected[1], rtol=1e-5)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 70])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_results_are_written_in_pairs(n, dtype):
    r = np.random.default_rng(n)
    x, y = ((r.standard_normal((3, n)) + 1j * r.standard_normal((3, n))).astype(dtype) for _ in range(2))
    a, b = facula.from_numpy(x), facula.from_numpy(y)
    tolerance = 1e-6 if dtype == "complex64" else 1e-14
    np.testing.assert_allclose((a * b - a.conj()).numpy(), x * y - x.conj(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose((a.t() + b.t()).numpy(), (x + y).T, rtol=tolerance)
    out = facula.zeros(3, 2 * n, dtype=a.dtype)
    facula.add(a, b, out=out[:, ::2])
    np.testing.assert_allclose(out.numpy()[:, ::2], x + y, rtol=tolerance)
    assert not out.numpy()[:, 1::2].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "exponent", [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 7.0, np.inf, -np.inf, np.nan]
)
def test_powers_of_every_base(dtype, exponent):
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 3e8, -3e8]
    x = np.concatenate([special, np.random.default_rng(0).standard_normal(50) * 3]).astype(dtype)
    with np.errstate(all="ignore"):
        want = np.power(x, np.asarray(exponent, dtype))
    t = facula.from_numpy(x)
    for got in (t**exponent, t ** facula.full_like(t, exponent)):
        got = got.numpy()
        if abs(exponent) == 0.5:  # a root: of -0 and -inf IEEE's, as PyTorch's
            got, expected = got[x > 0], want[x > 0]
        else:
            expected = want
        np.testing.assert_allclose(got, expected, rtol=3e-7 if dtype == "float32" else 5e-16)
        assert np.array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))
    mixed = np.resize([2.0, 0.5, -1.0, 3.0, 1.7, -0.5, 1.0], x.shape).astype(dtype)
    alone = [
        facula.pow(facula.from_numpy(x[k : k + 1]), facula.from_numpy(mixed[k : k + 1])).item()
        for k in range(len(x))
    ]
    assert np.array_equal(
        facula.pow(t, facula.from_numpy(mixed)).numpy(), np.array(alone, dtype), equal_nan=True
    )


@pytest.mark.parametrize("layout", ["channels_last", "contiguous_format"])
def test_padding_keeps_the_layout(layout):
    x = np.random.default_rng(0).standard_normal((2, 5, 6, 7)).astype(np.float32)
    t = facula.from_numpy(x).contiguous(memory_format=getattr(facula, layout))
    for pad in ([1, 2], [1, 2, 3, 0], [-1, 2, 0, -3], [1, 1, 1, 1, -2, 4]):
        widths = [(max(0, a), max(0, b)) for a, b in zip(pad[::2], pad[1::2])][::-1]
        crop = [slice(max(0, -a), None if b >= 0 else b) for a, b in zip(pad[::2], pad[1::2])][::-1]
        full = 4 - len(widths)
        want = np.pad(x, [(0, 0)] * full + widths, constant_values=1.5)[(slice(None),) * full + tuple(crop)]
        got = F.pad(t, pad, value=1.5)
        assert np.array_equal(got.numpy(), want)
        assert got.is_contiguous(memory_format=getattr(facula, layout))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("rows, columns", [(1, 300), (300, 1), (70, 200), (129, 65)])
def test_products_with_vectors(dtype, rows, columns):
    r = np.random.default_rng(0)
    m, v, w = (r.standard_normal(s).astype(dtype) for s in ((rows, columns), columns, 2 * rows))
    a, b, c = facula.from_numpy(m), facula.from_numpy(v), facula.from_numpy(w)[::2]
    tolerance = 1e-12 if dtype == "float64" else 2e-4
    for got, want in (
        (a @ b, m @ v),
        (c @ a, w[::2] @ m),
        (a.t() @ c, m.T @ w[::2]),
        (b[None] @ a.t(), v[None] @ m.T),
        (
            facula.addmm(facula.from_numpy(m[:, :1]), a, b[:, None], beta=2, alpha=0.5),
            2 * m[:, :1] + 0.5 * (m @ v[:, None]),
        ),
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bfloat16"])
@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (3, 300000), (17, 33)])
def test_the_first_of_equal_extrema_is_found_even_at_the_least_number(dtype, shape):
    x = numbers(shape, "int64", most=4)
    if dtype in ("float32", "float64", "bfloat16"):
        x = np.array([-np.inf, 0, 1, np.nan])[x]
    x[1] = x[:, 2] = x.min(where=x == x, initial=255)  # only the lowest
    x[:, 0] = x[:, 1]
    given = facula.from_numpy(x).to(getattr(facula, dtype))
    for dim in (0, 1):
        assert np.array_equal(given.argmax(dim).numpy(), x.argmax(dim))
        assert np.array_equal(given.max(dim).indices.numpy(), x.argmax(dim))
        if dtype != "uint8":
            assert np.array_equal((-given).argmin(dim).numpy(), (-x).argmin(dim))
    assert given.argmax().item() == x.argmax()


def pooled(x, kernel, stride, padding, dilation):
    """Largest values and their positions, window by window; and where each goes back to."""
    n, c, h, w = x.shape
    sizes = [
        (m + 2 * p - d * (k - 1) - 1) // s + 1
        for m, k, s, p, d in zip((h, w), kernel, stride, padding, dilation)
    ]
    values, indices = np.empty((n, c, *sizes), x.dtype), np.empty((n, c, *sizes), np.int64)
    for at in np.ndindex(n, c, *sizes):
        best = None
        for tap in np.ndindex(*kernel):
            y, z = (at[2 + k] * stride[k] - padding[k] + tap[k] * dilation[k] for k in (0, 1))
            if 0 <= y < h and 0 <= z < w and (best is None or x[at[0], at[1], y, z] > best[0]):
                best = x[at[0], at[1], y, z], y * w + z
        values[at], indices[at] = best
    return values, indices


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        ((2, 2), (2, 2), (0, 0), (1, 1)),
        ((3, 3), (2, 2), (1, 1), (1, 1)),
        ((3, 2), (1, 3), (1, 0), (1, 1)),
        ((1, 4), (1, 1), (0, 2), (1, 1)),
        ((3, 3), (2, 1), (1, 1), (2, 2)),
        ((16, 17), (3, 3), (8, 4), (1, 1)),  # taps beyond a byte
    ],
)
def test_max_pools_remember_the_element_of_each_window(kernel, stride, padding, dilation, last):
    options = (kernel, stride, padding, dilation)
    for dtype in ("float32", "bfloat16", "int32", "uint8"):
        x = numbers((2, 19, 9, 14), "int64", most=7)  # many ties
        if dtype in ("float32", "bfloat16"):
            x = np.where(x < 2, -np.inf, x)
            x[0, 3], x[1, :, 0:4] = -np.inf, -np.inf
        given = facula.from_numpy(x).to(getattr(facula, dtype))
        given = given.contiguous(memory_format=facula.channels_last) if last else given
        values, indices = pooled(x, *options)
        result, found = F.max_pool2d(given, *options, return_indices=True)
        assert np.array_equal(result.double().numpy(), values.astype(float))
        assert np.array_equal(F.max_pool2d(given, *options).double().numpy(), values.astype(float))
        assert np.array_equal(found.numpy(), indices)
        if given.is_floating_point():
            given.requires_grad_()
            weight = np.arange(values.size, dtype=float).reshape(values.shape) % 8
            weights = facula.from_numpy(weight).to(given.dtype).requires_grad_()
            (back,) = facula.autograd.grad(F.max_pool2d(given, *options), given, weights, create_graph=True)
            expected = np.zeros((2, 19, 9 * 14))
            for n, c in np.ndindex(2, 19):
                np.add.at(expected[n, c], indices[n, c].ravel(), weight[n, c].ravel())
            rounded_once = 2.0**-9 if dtype == "bfloat16" else 0
            np.testing.assert_allclose(
                back.detach().double().numpy().reshape(2, 19, -1), expected, rtol=rounded_once, atol=0
            )
            upwards = numbers((2, 19, 9, 14), "int64")
            (picked,) = facula.autograd.grad(back, weights, facula.from_numpy(upwards).to(given.dtype))
            flat = np.take_along_axis(upwards.reshape(2, 19, -1), indices.reshape(2, 19, -1), 2)
            assert np.array_equal(picked.double().numpy(), flat.reshape(values.shape))


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16", "float16"])
@pytest.mark.parametrize("n", [1, 15, 31, 33, 63, 65, 130, 300])
def test_whole_vectors_and_edges_are_moved_alike(dtype, n):
    short = dtype in ("bfloat16", "float16")
    x = numbers((3, n), "float32" if short else dtype)
    given = facula.from_numpy(x).to(getattr(facula, dtype))

    def same(ours, theirs):
        ours = ours.float() if short else ours
        assert np.array_equal(ours.numpy(), theirs)

    for before, after in ((1, 1), (0, 40), (17, 0), (64, 3)):
        expected = np.pad(x, ((1, 0), (before, after)), constant_values=1)
        same(F.pad(given, (before, after, 1, 0), value=1), expected)
    if n > 2:
        same(F.pad(given, (-1, 2)), np.pad(x[:, 1:], ((0, 0), (0, 2))))
    same(given.flip(0), x[::-1])
    same(given.flip(1), x[:, ::-1])
    same(given.roll(3, 1), np.roll(x, 3, 1))
    same(given.index_select(0, facula.tensor([2, 0, 2])), x[[2, 0, 2]])
    same(given.tril(5), np.tril(x, 5))
    same(given.triu(n // 2), np.triu(x, n // 2))
    same(given.t().contiguous(), x.T)
    same(given[:, ::2].contiguous(), x[:, ::2])
    same(facula.cat([given, given[:, :1]], 1), np.concatenate([x, x[:, :1]], 1))


@pytest.mark.parametrize("step", [2, 3, 4, 5, -2])
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16", "complex64"])
def test_columns_some_apart_are_read_in_every_length(dtype, step):
    short = dtype == "bfloat16"
    for n in (5, 16, 33, 64, 200, 259):
        x = numbers((3, n), {"bfloat16": "float32", "complex64": "float32"}.get(dtype, dtype))
        x = x + np.complex64(1j) if dtype == "complex64" else x
        given = facula.from_numpy(x).to(getattr(facula, dtype))
        ours, theirs = (
            (given.flip(1)[:, 1::2], x[:, ::-1][:, 1::2]) if step < 0 else (given[:, ::step], x[:, ::step])
        )
        ours, twice = ours.contiguous(), ours + ours
        if short:
            ours, twice = ours.float(), twice.float()
        assert np.array_equal(ours.numpy(), theirs)
        assert np.array_equal(twice.numpy(), theirs + theirs)


def test_what_keeps_a_bfloat16_keeps_its_bits():
    bits = np.arange(1 << 16, dtype=np.uint32) << 16
    x = bits.view(np.float32)
    x = x[~np.isnan(x)]
    given = facula.from_numpy(x).to(facula.bfloat16)
    other = given.flip(0)
    for ours, theirs in (
        (given.abs(), np.abs(x)),
        (-given, -x),
        (facula.relu(given), np.maximum(x, 0)),
        (facula.maximum(given, other), np.maximum(x, x[::-1])),
        (facula.where(given > 1, given, other), np.where(x > 1, x, x[::-1])),
        (facula.sign(given), np.sign(x)),
        (facula.copysign(given, other), np.copysign(x, x[::-1]))
        if hasattr(facula, "copysign")
        else (given, x),
    ):
        assert np.array_equal(ours.float().numpy(), theirs)
    assert facula.isnan(facula.abs(facula.tensor([float("nan")] * 40, dtype=facula.bfloat16))).all()


@pytest.mark.parametrize("n", [1, 2, 7, 16, 24, 25, 64, 200, 3000])
@pytest.mark.parametrize("kind", ["few", "near", "far", "ends", "float32", "float64", "uint8"])
def test_lines_of_every_length_are_sorted_stably(n, kind):
    random = np.random.default_rng(n)
    x = {
        "few": lambda: random.integers(0, 4, (5, n)),
        "near": lambda: random.integers(-(1 << 31), 1 << 31, (5, n)),
        "far": lambda: random.integers(-(1 << 62), 1 << 62, (5, n)),
        "ends": lambda: random.choice(np.array([-(1 << 63), (1 << 63) - 1, 0, -1]), (5, n)),
        "uint8": lambda: random.integers(0, 256, (5, n)).astype(np.uint8),
    }.get(kind, lambda: np.round(random.standard_normal((5, n)), 1).astype(kind))()
    for given, array in ((facula.from_numpy(x), x), (facula.from_numpy(x.T.copy()).t(), x)):
        rising = np.argsort(array, 1, kind="stable")
        falling = n - 1 - np.argsort(array[:, ::-1], 1, kind="stable")[:, ::-1]
        for descending, order in ((False, rising), (True, falling)):
            values, places = facula.sort(given, 1, descending, stable=True)
            assert np.array_equal(places.numpy(), order)
            assert np.array_equal(values.numpy(), np.take_along_axis(array, order, 1))
            for k in {1, min(5, n), min(16, n), min(17, n), n // 2}:
                values, places = given.topk(k, 1, largest=descending)
                assert np.array_equal(values.numpy(), np.take_along_axis(array, order[:, :k], 1))
                assert np.array_equal(values.numpy(), np.take_along_axis(array, places.numpy(), 1))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_rows_of_every_length_are_joined(dtype):
    random = np.random.default_rng(0)
    for n in [*range(1, 37), 63, 64, 65, 95, 96, 97, 127, 128, 129, 140]:
        parts = [random.integers(0, 100, (67, k)).astype(dtype) for k in (n, 3, n + 1, 0, n)]
        found = facula.cat([facula.tensor(x) for x in parts], 1).numpy()
        np.testing.assert_array_equal(found, np.concatenate(parts, 1))
        found = facula.stack([facula.tensor(parts[0]), facula.tensor(parts[4])], 1).numpy()
        np.testing.assert_array_equal(found, np.stack([parts[0], parts[4]], 1))


@pytest.mark.parametrize("shape", [(5, 33), (40, 4), (3, 70, 6)])
def test_what_is_added_along_the_last_dimension_is_what_numpy_adds(shape):
    random = np.random.default_rng(1)
    source = random.integers(-9, 9, (*shape[:-1], 50)).astype(np.float32)
    index = random.integers(0, shape[-1], 50)
    want = np.ones(shape, np.float32)
    np.add.at(want, (..., index), 2 * source)
    for order in ("C", "F"):
        x = facula.tensor(np.ones(shape, np.float32, order))
        found = x.index_add(-1, facula.tensor(index), facula.tensor(source), alpha=2)
        np.testing.assert_array_equal(found.numpy(), want)


def scattered(base, dim, index, source, combine):
    out = base.copy()
    for at in np.ndindex(index.shape):
        to = (*at[:dim], index[at], *at[dim + 1 :])
        out[to] = combine(out[to], source[at])
    return out


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize(
    ("shape", "dim"), [((700,), 0), ((12, 300), 0), ((12, 300), 1), ((300, 3), 0), ((3, 70, 65), 1)]
)
def test_scatters_combine_in_order_on_any_number_of_threads(shape, dim, spread):
    random = np.random.default_rng(len(shape))
    index = random.integers(0, shape[dim], shape)
    given = facula.tensor(index)
    if spread:  # one index for all lines
        first = index[tuple(slice(None) if k == dim else slice(1) for k in range(len(shape)))]
        index, given = np.broadcast_to(first, shape), facula.tensor(first).expand(shape)
    base, source = (random.standard_normal(shape).astype("float32") for _ in range(2))
    combinations = {"sum": np.add, "amax": np.maximum, "prod": np.multiply}
    before = facula.get_num_threads()
    try:
        for reduce, combine in combinations.items():
            want = scattered(base, dim, index, source, combine)
            for threads in (1, 2, 3, 8):
                facula.set_num_threads(threads)
                x, y = facula.tensor(base), facula.tensor(source)
                assert np.array_equal(x.scatter_reduce(dim, given, y, reduce).numpy(), want)
                assert np.array_equal(x.scatter_reduce_(dim, given, y, reduce).numpy(), want)
    finally:
        facula.set_num_threads(before)


@pytest.mark.parametrize(("shape", "dim"), [((700,), 0), ((12, 300), 0), ((12, 300), 1)])
def test_the_first_bad_index_is_named_before_anything_is_written(shape, dim):
    index = facula.zeros(shape, dtype=facula.int64)
    index.view(-1)[-2:] = facula.tensor([5000, 6000])
    x, ones = facula.zeros(shape), facula.ones(shape)
    for call in (facula.Tensor.scatter_add_, facula.Tensor.scatter_add):
        with pytest.raises(RuntimeError, match="index 5000 is out of bounds"):
            call(x, dim, index, ones)
    assert not x.any()


def test_a_mask_without_dimensions_puts_all_or_nothing():
    for flag, expected in ((False, [0.0, 0.0, 0.0]), (True, [5.0, 5.0, 5.0])):
        x, mask = facula.zeros(3), facula.tensor(flag)
        assert x.index_put((mask,), facula.tensor(5.0)).tolist() == expected
        assert x.index_put_((mask,), facula.tensor(5.0)).tolist() == expected
        x = facula.zeros(3, requires_grad=True)
        (x * 2).index_put_((mask,), facula.tensor(5.0)).sum().backward()
        assert x.grad.tolist() == [0.0 if flag else 2.0] * 3
