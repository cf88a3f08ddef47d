"""Running extremes, modes, quantiles, scatters over a monoid, counts and masked reductions at ties, NaN and
empty places. The expected numbers are NumPy's or PyTorch's.
"""

import math

import numpy as np
import pytest

import facula

NAN, INF = math.nan, math.inf


def same(t, expected):
    np.testing.assert_equal(t.detach().numpy(), np.asarray(expected, dtype=t.detach().numpy().dtype))


def test_running_extremes_keep_the_last_of_ties_and_nan():
    values, indices = facula.cummax(facula.tensor([1.0, 3, 3, 2, NAN, 9, NAN]), 0)
    same(values, [1, 3, 3, 3, NAN, NAN, NAN])
    same(indices, [0, 1, 2, 2, 4, 4, 6])
    same(facula.cummin(facula.tensor([0.0, -0.0, 1]), 0)[1], [0, 1, 1])


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_sums_and_products_of_single_precision_are_rounded_once(name):
    """Along a line the rounding of every step would add up."""
    x = np.random.default_rng(0).random(30000, np.float32) * (1 if name == "cumsum" else 2e-3) + 0.999
    for shape in ((30000,), (3, 10000), (100, 30, 10)):
        line = x.reshape(shape)
        for k in range(line.ndim):
            exact = getattr(np, name)(line.astype(np.float64), k)
            same(getattr(facula, name)(facula.tensor(line), k), exact.astype(np.float32))
    z = (x[:900] + 1j * x[900:1800]).astype(np.complex64)
    found, exact = facula.cumsum(facula.tensor(z), 0).numpy(), np.cumsum(z.astype(np.complex128))
    same(facula.tensor(found), exact.astype(np.complex64))


def lines_of(dtype, shape):
    random = np.random.default_rng(7)
    if dtype.startswith("int"):
        return random.integers(-1000, 1000, shape).astype(dtype)
    return (random.standard_normal(shape) * 2).astype(dtype)


def are_running_sums(found, x):
    if x.dtype != np.float64:  # float32 is summed in float64
        return same(found, np.cumsum(x.astype(np.float64) if x.dtype == np.float32 else x, -1))
    exact = np.cumsum(x.astype(np.longdouble), -1)
    one_by_one = np.abs(np.cumsum(x, -1) - exact).max()  # which is chance, and so is ours
    assert np.abs(found.numpy() - exact).max() <= max(2 * one_by_one, np.abs(exact).max() * 2**-52)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(1,), (16,), (17,), (1000,), (5, 33), (3, 40000), (200001,), (70, 2, 129)])
def test_running_sums_and_extremes_of_lines_of_any_length_are_numpys(dtype, shape):
    x = lines_of(dtype, shape)
    t = facula.tensor(x)
    views = t.flip(-1), t.unsqueeze(0).expand(2, *shape), facula.tensor(np.repeat(x, 3, -1))[..., ::3]
    for view in (t, *views):
        are_running_sums(view.cumsum(-1), view.numpy())
    for name, best in (("cummax", np.maximum), ("cummin", np.minimum)):
        values, places = getattr(facula, name)(t, -1)
        same(values, best.accumulate(x, -1))
        same(t.gather(-1, places), values)
        last = np.where(x == values.numpy(), np.arange(shape[-1]), 0)
        same(places, np.maximum.accumulate(last, -1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("at", [0, 15, 16, 40000, 99999])
def test_running_sums_are_infinite_and_nan_from_where_one_by_one_they_are(dtype, at):
    for specials in ([math.inf], [math.nan], [math.inf, 1, -math.inf], [-math.inf, math.inf]):
        x = facula.ones(100000, dtype=getattr(facula, dtype))
        last = min(100000, at + len(specials))
        x[at:last] = facula.tensor(specials[: last - at], dtype=x.dtype)
        found = x.cumsum(0).double().numpy()
        with np.errstate(invalid="ignore"):
            exact = np.cumsum(x.double().numpy())
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(np.isfinite(found), finite)
        np.testing.assert_array_equal(found[~finite], exact[~finite])
        np.testing.assert_allclose(found[finite], exact[finite], 1e-2 if dtype == "bfloat16" else 1e-6)


def test_running_products_overflow_and_vanish_where_one_by_one_they_do():
    """Factors taken together first might overflow, and then be NaN times zero."""
    for dtype in (np.float32, np.float64):
        big, small = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
        for x in (
            [0] + [big] * 40,
            [small] * 40 + [big] * 40,
            [big] * 5 + [small] * 5 + [big] * 30,
            [2, 0, 3] * 9,
        ):
            x = np.array(x, dtype)
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                exact = np.cumprod(x.astype(np.float64)).astype(dtype)
            same(facula.tensor(x).cumprod(0), exact)
            same(facula.tensor(np.stack([x, x])).cumprod(1), [exact, exact])
    x = np.random.default_rng(0).integers(-9, 9, (3, 1000))
    same(facula.tensor(x).cumprod(1), np.cumprod(x, 1))


def test_long_running_sums_have_the_same_bits_for_any_number_of_threads():
    x = facula.tensor(np.random.default_rng(3).standard_normal((2, 300001)).astype(np.float32))
    before, found = facula.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            facula.set_num_threads(threads)
            found.append(
                (x.cumsum(1), x[0].cumsum(0), x.half().cumsum(1), x[0].long().cumsum(0), x.sort(1)[1])
            )
    finally:
        facula.set_num_threads(before)
    for other in found[1:]:
        assert all(map(facula.equal, found[0], other))


def wide_keys(kind, dtype, n):
    """Values whose leading bits are equal in many, whose last ones are, or in neither."""
    random = np.random.default_rng(n)
    if dtype.startswith("int"):
        info = np.iinfo(dtype)
        leading = random.choice([info.min, 0, info.max // 2, info.max - 100], n).astype(dtype)
        x = {
            "leading": leading + random.integers(0, 100, n).astype(dtype),
            "any": random.integers(info.min, info.max, n, dtype, endpoint=True),
            "few": random.choice(random.integers(info.min, info.max, 50, dtype), n),
        }[kind]
    else:
        eps = np.finfo(dtype).eps
        x = {
            "leading": random.choice([-1e30, -1, 0.5, 1, 1e30], n) * (1 + eps * random.integers(0, 100, n)),
            "any": random.standard_normal(n) * 10.0 ** random.integers(-30, 30, n),
            "few": random.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 1.5], n),
        }[kind].astype(dtype)
        x[random.integers(0, n, 3)] = math.nan
    return x


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("kind", ["leading", "any", "few"])
@pytest.mark.parametrize("n", [25, 100, 5000, 200003])
def test_lines_of_a_wide_range_are_sorted_stably(dtype, kind, n):
    x = wide_keys(kind, dtype, n)
    before = facula.get_num_threads()
    try:
        for threads in (1, 4):
            facula.set_num_threads(threads)
            t = facula.tensor(np.stack([x, x], 1))[:, 1]
            values, places = t.sort(stable=True)
            same(places, np.argsort(x, kind="stable"))
            same(values, x[places.numpy()])
            same(t.argsort(descending=True, stable=True), n - 1 - np.argsort(x[::-1], kind="stable")[::-1])
            rows = facula.tensor(np.stack([x, x[::-1]])).sort(1)[1]
            same(rows, np.stack([np.argsort(x, kind="stable"), np.argsort(x[::-1], kind="stable")]))
    finally:
        facula.set_num_threads(before)


def test_running_sums_of_logarithms_neither_overflow_nor_vanish():
    x = facula.tensor([-INF, -INF, 1000.0, 1000, -1000, INF, 0, NAN, 0])
    same(facula.logcumsumexp(x, 0)[:2], [-INF, -INF])
    np.testing.assert_allclose(facula.logcumsumexp(x, 0)[2:5].numpy(), np.array([1000, 1000.6931, 1000.6931]))
    same(facula.logcumsumexp(x, 0)[5:], [INF, INF, NAN, NAN])
    same(facula.logcumsumexp(facula.tensor([-1000.0, -1000]), 0)[:1], [-1000])
    x = np.random.default_rng(0).standard_normal((3, 70, 5)) * 5
    for dtype, eps in ((facula.float64, 1e-13), (facula.float32, 2e-7), (facula.bfloat16, 2**-8)):
        t = facula.tensor(x).to(dtype)
        exact = np.log(np.cumsum(np.exp(t.double().numpy()), 1))
        np.testing.assert_allclose(facula.logcumsumexp(t, 1).double().numpy(), exact, rtol=eps, atol=eps)
        strided = facula.logcumsumexp(t.transpose(0, 1), 0).transpose(0, 1)
        assert facula.equal(strided, facula.logcumsumexp(t, 1))
    z = facula.complex(facula.tensor(x), facula.tensor(x[::-1].copy()))
    exact = np.cumsum(np.exp(z.numpy()), 1)
    np.testing.assert_allclose(facula.logcumsumexp(z, 1).exp().numpy(), exact, rtol=1e-12)


def test_gradients_of_running_sums_of_logarithms_have_both_signs():
    x = facula.tensor([0.5, -1, 2, -700, 3], dtype=facula.float64, requires_grad=True)
    w = facula.tensor([1.0, -2, 0, 3, -1], dtype=facula.float64)
    facula.logcumsumexp(x, 0).backward(w)
    e = np.exp(x.detach().numpy())
    expected = e * np.cumsum((w.numpy() / np.cumsum(e))[::-1])[::-1]
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_gradients_of_running_sums_of_logarithms_keep_their_digits_beside_large_numbers(dtype):
    x = facula.tensor([1000.0, 999.5, 1001, 998, 1003]).to(getattr(facula, dtype))
    wide = x.to(facula.complex128 if x.is_complex() else facula.float64)
    for given in (x, wide):
        given.requires_grad_()
        facula.logcumsumexp(given, 0).backward(given.detach() - 1000)
    np.testing.assert_allclose(x.grad.numpy(), wide.grad.numpy(), rtol=2e-7)


def test_covariances_have_the_digits_of_the_observations_with_short_weights():
    x = facula.tensor([[1.0, 2, 5], [3, -1, 0.1]], dtype=facula.float64)
    weights = facula.tensor([0.1, 0.7, 0.35])
    found, exact = (facula.cov(x, aweights=w) for w in (weights, weights.double()))
    np.testing.assert_allclose(found.numpy(), exact.numpy(), rtol=1e-14)
    wanted = np.cov(x.numpy(), aweights=weights.double().numpy())
    np.testing.assert_allclose(exact.numpy(), wanted, rtol=1e-12)


def test_masked_indices_are_taken_within_the_ends():
    x, i = facula.arange(6.0).reshape(2, 3), [facula.tensor([0, 5]), facula.tensor([1, -7])]
    same(facula._unsafe_masked_index(x, facula.tensor([True, False]), i, -1.0), [1, -1])
    same(facula._unsafe_masked_index(x, facula.tensor([True, True]), i, -1.0), [1, 3])
    put = facula._unsafe_masked_index_put_accumulate
    same(put(x, facula.tensor([True, False]), i, facula.tensor([10.0, 20])), [[0, 11, 2], [3, 4, 5]])


def test_the_gradient_of_a_running_extremum_goes_where_it_was():
    x = facula.tensor([1.0, 3, 2, 4], requires_grad=True)
    facula.cummax(x, 0)[0].sum().backward()
    same(x.grad, [1, 2, 0, 1])


def test_mode_is_the_smallest_of_the_most_frequent_and_where_it_is_last():
    values, indices = facula.mode(facula.tensor([[2, 1, 2, 1], [3, 3, 0, 0]]))
    same(values, [1, 0])
    same(indices, [3, 3])


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantile_interpolates_as_numpy(interpolation):
    x = np.array([[3.0, 1, 2, 7], [5, 0, 4, 4]])
    q = np.array([0, 0.3, 0.8, 1])
    got = facula.quantile(facula.tensor(x), facula.tensor(q), 1, interpolation=interpolation)
    np.testing.assert_allclose(got.numpy(), np.quantile(x, q, 1, method=interpolation), rtol=1e-15)


def test_quantiles_of_nan():
    x = facula.tensor([[1.0, NAN, 3], [NAN, NAN, NAN]])
    same(facula.quantile(x, 0.5, 1), [NAN, NAN])
    same(facula.nanquantile(x, 0.5, 1), [2, NAN])
    same(facula.nanmedian(x, 1)[0], [1, NAN])


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce_combines_what_falls_on_one_place(reduce, include_self):
    self, src, index = np.array([2.0, 3, 5, 7]), np.array([1.0, -4, 6]), [1, 3, 1]
    f = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}[reduce]
    expected = []
    for k, own in enumerate(self):
        there = [s for s, i in zip(src, index) if i == k]
        expected.append(f([own, *there] if include_self or not there else there))
    at = facula.tensor(index)
    got = facula.tensor(self).scatter_reduce(0, at, facula.tensor(src), reduce, include_self=include_self)
    same(got, expected)
    if reduce != "sum":
        same(
            facula.tensor(self).index_reduce(0, at, facula.tensor(src), reduce, include_self=include_self),
            expected,
        )


def test_the_gradient_of_a_scattered_product_at_zeros():
    self = facula.tensor([2.0, 0], requires_grad=True)
    src = facula.tensor([0.0, 3, 5], requires_grad=True)
    self.scatter_reduce(0, facula.tensor([0, 0, 1]), src, "prod").sum().backward()
    same(self.grad, [0, 5])
    same(src.grad, [6, 0, 0])


def test_segments_of_no_elements():
    data, lengths = facula.tensor([1.0, 2, 3]), facula.tensor([2, 0, 1])
    for reduce, expected in {
        "sum": [3, 0, 3],
        "prod": [2, 1, 3],
        "max": [2, -INF, 3],
        "mean": [1.5, NAN, 3],
    }.items():
        same(facula.segment_reduce(data, reduce, lengths=lengths), expected)


def test_histograms_count_as_numpy():
    x = np.random.default_rng(0).normal(size=200)
    hist, edges = facula.histogram(facula.tensor(x), 7, range=(-1.0, 1.5))
    expected, at = np.histogram(x, 7, (-1.0, 1.5))
    same(hist, expected)
    np.testing.assert_allclose(edges.numpy(), at, rtol=1e-15, atol=1e-15)
    same(facula.histc(facula.tensor([0.0, 1, 1, NAN, INF, 2]), 2, 0, 2), [1, 3])
    same(facula.bincount(facula.tensor([1, 3, 1]), minlength=5), [0, 2, 0, 1, 0])


def test_edges_around_one_value_are_rounded_to_its_dtype():
    # float32 of 0.7 - 0.5 and of 0.7 + 0.5, whose middle is above float32 of 0.7.
    hist, edges = facula.histogram(facula.tensor([0.7]), 4)
    middle = np.float32(np.float32(np.float64(np.float32(0.7)) + 0.5) - np.float32(0.5))
    assert edges[2].item() == middle > np.float32(0.7)
    same(hist, [0, 1, 0, 0])


def test_vector_products_of_infinities_are_infinite():
    a = facula.tensor([1 + 2j, 3 - 1j, 0.5 + 0.25j], dtype=facula.complex128)
    b = facula.tensor([2 - 1j, complex(0, -INF), 1 + 1j], dtype=facula.complex128)
    product = facula.linalg.cross(a, b)
    assert [product[0].real.item(), product[0].imag.item()] == [-INF, INF]
    assert [product[2].real.item(), product[2].imag.item()] == [INF, -INF]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_bins_are_counted_alike_for_every_dtype_and_number_of_threads(dtype):
    threads = facula.get_num_threads()
    try:
        for count, most in ((0, 5), (1, 1), (3, 120), (5000, 1), (5001, 7), (200003, 100), (300001, 127)):
            x = np.random.default_rng(count).integers(0, most, count)
            t = facula.tensor(x).to(getattr(facula, dtype))
            for k in (1, 2, 3):
                facula.set_num_threads(k)
                same(facula.bincount(t), np.bincount(x))
                same(facula.bincount(t.flip(0), minlength=300), np.bincount(x, minlength=300))
                assert facula.bincount(t).dtype == facula.int64
    finally:
        facula.set_num_threads(threads)
    wide = np.random.default_rng(0).integers(0, 1 << 17, 200000)
    same(facula.bincount(facula.tensor(wide)), np.bincount(wide))
    same(facula.bincount(facula.tensor(wide)[::3]), np.bincount(wide[::3]))


def test_bins_of_negative_and_of_too_large_numbers_are_refused():
    for wrong in ([3, -1], [-128] * 70000):
        with pytest.raises(RuntimeError, match="bincount.*non-negative"):
            facula.bincount(facula.tensor(wrong).to(facula.int8))
    with pytest.raises(RuntimeError, match="bincount"):
        facula.bincount(facula.tensor([2**63 - 1]))
    with pytest.raises(RuntimeError, match="bincount.*1-d"):
        facula.bincount(facula.ones(2, 2).long())


def bisected(line, value, right):
    """The steps of a binary search, which lead to a place in lines that are not in order too."""
    begin, end = 0, len(line)
    while begin < end:
        middle = (begin + end) // 2
        if not (line[middle] > value if right else line[middle] >= value):
            begin = middle + 1
        else:
            end = middle
    return begin


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
def test_places_in_lines_of_every_length_in_order_or_not(dtype):
    rng = np.random.default_rng(0)
    for n in (*range(19), 31, 32, 33, 34, 63, 64, 65, 100):
        lines = rng.integers(0, 2 if dtype == "bool" else 12, (6, n)).astype("float64")
        values = rng.integers(0, 2 if dtype == "bool" else 13, (6, 21)).astype("float64")
        lines[2:4].sort()
        if "float" in dtype:
            lines[:, ::5], values[:, ::6] = np.nan, np.nan
            values[:, 1], values[:, 2], lines[:, 3:4] = np.inf, -0.0, -np.inf
        t, v = (facula.tensor(x).to(getattr(facula, dtype)) for x in (lines, values))
        order = rng.permuted(np.tile(np.arange(n), (6, 1)), axis=1)
        for right in (False, True):
            for row in (slice(None), slice(0, 1)):  # of each line of values its own, or of all the first
                line, sorter = t[row].squeeze(0), facula.tensor(order)[row].squeeze(0)
                found = [facula.searchsorted(line, v, right=right)]
                found.append(facula.searchsorted(line, v, right=right, sorter=sorter))
                for given, at in zip((lines, np.take_along_axis(lines, order, 1)), found):
                    expected = [
                        [bisected(given[row][k % len(given[row])], x, right) for x in values[k]]
                        for k in range(6)
                    ]
                    same(at, expected)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
@pytest.mark.parametrize("descending", [False, True])
def test_short_rows_are_sorted_stably(dtype, descending):
    rng = np.random.default_rng(0)
    for n in (*range(1, 27), 31, 33):
        rows = rng.integers(0, 2 if dtype == "bool" else 7, (30, n)).astype("float64")
        if dtype in ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8"):
            rows -= 3
        key = rows.copy()
        if "float" in dtype:
            rows[::3, n // 2], rows[::4, 0], rows[1::4, -1] = np.nan, -0.0, np.inf
            key = np.where(np.isnan(rows), np.inf, np.minimum(rows, 1e9)) + 0.0
        order = np.argsort(-key if descending else key, axis=1, kind="stable")
        values, indices = facula.tensor(rows).to(getattr(facula, dtype)).sort(-1, descending)
        same(indices, order)
        same(values.double(), np.take_along_axis(rows, order, 1))
        same(facula.tensor(rows.T.copy()).to(getattr(facula, dtype)).sort(0, descending)[1].t(), order)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "complex64", "int64", "uint8"]
)
def test_runs_of_numbers_that_are_equal_but_for_their_bits_or_not_for_nan(dtype):
    for n in (1, 2, 7, 8, 9, 40, 33000):
        x = np.random.default_rng(n).integers(0, 3, n).astype("float64")
        if dtype[0] in "fbc":
            x[::7], x[3::11] = -0.0, np.nan
        starts = np.flatnonzero(np.r_[True, x[1:] != x[:-1]])
        t = facula.tensor(x).to(getattr(facula, dtype))
        values, inverse, counts = facula.unique_consecutive(t, return_inverse=True, return_counts=True)
        same(values.to(facula.complex128).real, x[starts])
        same(facula.unique_consecutive(t).to(facula.complex128).real, x[starts])
        same(counts, np.diff(np.r_[starts, n]))
        same(inverse, np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, n])))


def test_search_finds_the_place_before_or_behind_equal_elements():
    line = facula.tensor([1.0, 2, 2, 3])
    same(facula.searchsorted(line, facula.tensor([2.0, NAN, -INF])), [1, 4, 0])
    same(facula.searchsorted(line, facula.tensor([2.0]), right=True), [3])
    same(
        facula.isin(facula.tensor([1.0, NAN, 5]), facula.tensor([NAN, 1, *range(10, 60)])),
        [True, False, False],
    )


def test_masked_reductions_leave_out_what_the_mask_does():
    x, mask = facula.tensor([[1.0, 2, 3], [4, 5, 6]]), facula.tensor([[True, False, True], [False] * 3])
    same(facula.masked.sum(x, 1, mask=mask), [4, 0])
    same(facula.masked.amax(x, 1, mask=mask), [3, -INF])
    same(facula.masked.mean(x, 1, mask=mask), [2, NAN])
    same(facula.masked.argmin(x, 1, mask=mask)[:1], [0])


def test_a_view_has_a_copy_and_an_inverse():
    x = facula.arange(6.0).view(2, 3)
    copy = facula.transpose_copy(x, 0, 1)
    copy.zero_()
    same(x, [[0, 1, 2], [3, 4, 5]])
    same(facula.diagonal_scatter(x, facula.tensor([9.0, 9])), [[9, 1, 2], [3, 9, 5]])
    same(facula.slice_scatter(x, facula.ones(2, 1), 1, 2), [[0, 1, 1], [3, 4, 1]])


@pytest.mark.parametrize("shape", [(3, 4), (2, 1, 3), (7,), (2**31, 2**31), (2**40, 2**20)])
def test_coordinates_of_positions_are_numpys(shape):
    last = math.prod(shape) - 1
    at = np.array([0, 1, last // 2, last - 1, last])
    for found, expected in zip(
        facula.unravel_index(facula.tensor(at), shape), np.unravel_index(at, shape), strict=True
    ):
        same(found, expected)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (2, 0, 3)])
def test_a_tensor_without_elements_has_no_positions(shape):
    none = facula.unravel_index(facula.zeros(0, dtype=facula.int64), shape)
    assert [list(x.shape) for x in none] == [[0]] * len(shape)
    with pytest.raises(RuntimeError, match="unravel_index.*has no elements"):
        facula.unravel_index(facula.tensor([0]), shape)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8"]
)
def test_the_kth_and_the_middle_of_short_rows_with_ties_and_nan(dtype):
    generator = np.random.default_rng(1)
    floating = "float" in dtype
    for n in (*range(1, 20), 24, 25, 31, 32, 33, 48, 63, 64, 65, 70):
        rows = generator.integers(0, max(2, n // 2), (40, n)).astype("float64") - ("u" not in dtype) * (
            n // 4
        )
        if floating:
            rows[::5, :: max(1, n // 3)] = np.nan
            rows[1::5, 0] = -0.0
            rows[2::5, -1] = np.inf
            rows[3::5, 0] = -np.inf
            rows[10] = np.nan
        elif n > 2 and dtype == "int64":
            rows[1::5, 0], rows[2::5, -1] = -(2.0**62), 2.0**62
        x = facula.tensor(rows).to(getattr(facula, dtype))
        order = np.argsort(rows, axis=1, kind="stable")  # NaN last
        for k in {1, 2, (n + 1) // 2, n} & set(range(1, n + 1)):
            for values, indices in (
                x.kthvalue(k, -1),
                [y.squeeze(1) for y in x.t().contiguous().t().kthvalue(k, 1, True)],
            ):
                wanted = rows[range(40), order[:, k - 1]]
                np.testing.assert_array_equal(values.double().numpy(), wanted)
                np.testing.assert_array_equal(rows[range(40), indices.numpy()], wanted)
        missing = np.isnan(rows)
        values, indices = x.median(1)
        first = np.where(missing.any(1), missing.argmax(1), order[:, (n - 1) // 2])
        assert indices.tolist() == first.tolist()
        if floating:
            numbers = (~missing).sum(1)
            assert x.nanmedian(1)[1].tolist() == order[range(40), np.maximum(numbers - 1, 0) // 2].tolist()
