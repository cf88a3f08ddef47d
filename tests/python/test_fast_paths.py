"""Calls with a way of their own to be quick: rows shorter than a vector, gradients of pools along rows of an
image, 16-bit matrices times vectors, permutations."""

import numpy as np
import pytest

import facula as F

SHORT = (2, 3, 5, 8, 12, 16, 17)


def numbers(shape, dtype, seed=0):
    x = np.random.RandomState(seed).standard_normal(shape) * 3
    return (np.abs(x) * 10 if np.dtype(dtype).kind == "u" else x).astype(dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_moved_whole(dtype):
    a = (numbers((40, 70), "float64") + 1j * numbers((40, 70), "float64", seed=1)).astype(dtype)
    a[3, 5], a[4, 6] = complex(np.nan, 1), complex(-0.0, np.inf)
    z = F.from_numpy(a.copy())
    windows = np.lib.stride_tricks.sliding_window_view(a, 8, axis=1)[:, ::4]
    moves = {
        "windows": (z.unfold(1, 8, 4).contiguous(), windows),
        "part": (z[:, 1:38].contiguous(), a[:, 1:38]),
        "turned": (z.t().contiguous(), a.T),
        "apart": (z[:, ::2].contiguous(), a[:, ::2]),
        "joined": (F.cat([z, z[:, :3]], 1), np.concatenate([a, a[:, :3]], 1)),
        "spread": (z[:, :1].expand(40, 20).contiguous(), np.repeat(a[:, :1], 20, 1)),
        "conjugate": (z.conj().contiguous(), a.conj()),
    }
    for name, (got, want) in moves.items():
        assert got.resolve_conj().numpy().tobytes() == np.ascontiguousarray(want).tobytes(), name
    onto = z.clone()
    onto[:, 1:9] = onto[:, 0:8].clone()
    assert onto[:, 1:9].contiguous().numpy().tobytes() == np.ascontiguousarray(a[:, 0:8]).tobytes()


@pytest.mark.parametrize("n", SHORT)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
def test_rows_shorter_than_a_vector_are_reduced_one_by_one(n, dtype):
    for rows in (31, 47, 300):
        a = numbers((rows, n), dtype)
        t, wide = F.from_numpy(a.copy()), a.astype(np.float64)
        tolerance = {"float16": 5e-3, "float32": 1e-5}.get(dtype, 1e-12)
        assert np.allclose(t.sum(-1).double().numpy(), wide.sum(-1), rtol=tolerance, atol=tolerance * 10)
        assert np.array_equal(t.argmax(-1).numpy(), a.argmax(-1))
        sums = t.cumsum(-1).double().numpy()
        assert np.allclose(sums, wide.cumsum(-1), rtol=tolerance, atol=tolerance * 10)
        assert np.array_equal(t[::2].amax(-1).numpy(), a[::2].max(-1))  # rows with gaps between them


@pytest.mark.parametrize("n", SHORT)
def test_short_rows_are_normalised_and_written_each_by_itself(n):
    a = numbers((300, n), "float32")
    e = np.exp(a.astype(np.float64) - a.max(-1, keepdims=True))
    expected = e / e.sum(-1, keepdims=True)
    t = F.from_numpy(a.copy()).requires_grad_()
    y = t.softmax(-1)
    assert np.allclose(y.detach().numpy(), expected, atol=1e-6)
    g = numbers((300, n), "float32", seed=1)
    y.backward(F.from_numpy(g))
    inner = (expected * g).sum(-1, keepdims=True)
    assert np.allclose(t.grad.numpy(), expected * (g - inner), atol=1e-5)
    onto = F.from_numpy(a.copy())
    onto.cumsum_(-1)  # written where it is read
    assert np.allclose(onto.numpy(), a.astype(np.float64).cumsum(-1), atol=1e-4)
    z = F.from_numpy((a + 1j * a[::-1]).astype(np.complex64))
    assert np.allclose(z.sum(-1).numpy(), (a + 1j * a[::-1]).sum(-1), atol=1e-4)


def test_a_special_value_stays_in_its_short_row():
    a = numbers((64, 8), "float32")
    a[3, 2], a[10, 7], a[20] = np.nan, np.inf, -np.inf
    y = F.from_numpy(a.copy()).softmax(-1).numpy()
    bad = np.isnan(y).any(-1)
    assert np.flatnonzero(bad).tolist() == [3, 10, 20]


WINDOWS = [
    dict(kernel_size=3, stride=2, padding=1),
    dict(kernel_size=3, stride=1, padding=1),
    dict(kernel_size=2, stride=2),
    dict(kernel_size=(2, 3), stride=(3, 1), padding=(1, 0)),
    dict(kernel_size=3, stride=1, dilation=2),
    dict(kernel_size=3, stride=2, ceil_mode=True),
    dict(kernel_size=17, stride=5, padding=8),  # more elements than a byte can number
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("dtype", [F.float32, F.float64, F.bfloat16])
def test_gradients_of_max_pools_are_the_same_in_either_layout(window, dtype):
    """Each way is the other's oracle: windows add along rows, elements ask beside channels."""
    x = F.from_numpy(numbers((2, 3, 21, 19), "float32")).round().to(dtype)  # with ties

    def gradient(x):
        x = x.detach().requires_grad_()
        y = F.nn.functional.max_pool2d(x, **window)
        # Halves add up without rounding, so that the order of the windows does not matter.
        y.backward(F.from_numpy(numbers(tuple(y.shape), "float32", seed=1).round() / 2).to(dtype))
        return x.grad

    rows, channels = gradient(x), gradient(x.contiguous(memory_format=F.channels_last))
    assert rows.is_contiguous() and channels.is_contiguous(memory_format=F.channels_last)
    assert F.equal(rows, channels)
    assert F.equal(gradient(x[0]), rows[0])


@pytest.mark.parametrize("window", WINDOWS[:4], ids=str)
@pytest.mark.parametrize("dtype", [F.float32, F.bfloat16])
def test_a_special_gradient_stays_at_its_tap(window, dtype):
    x = F.from_numpy(numbers((3, 18, 50), "float32")).to(dtype).requires_grad_()
    y = F.nn.functional.max_pool2d(x, **window)
    g = F.ones(y.shape).to(dtype)
    g[0, 0, 0], g[1, 3, 5], g[2, -1, -1] = float("nan"), float("inf"), -float("inf")
    y.backward(g)
    assert [int((~p.float().isfinite()).sum()) for p in x.grad] == [1, 1, 1]
    _, places = F.max_pool2d_with_indices(x.detach(), **window)
    flat = x.grad.flatten(1)
    assert flat[0, places[0, 0, 0]].isnan() and flat[1, places[1, 3, 5]] == float("inf")
    assert flat[2, places[2, -1, -1]] == -float("inf")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "bool", "int64", "complex64"])
@pytest.mark.parametrize("times", [2, 3, 4, 8])
def test_elements_that_lanes_share_are_those_beneath_them(dtype, times):
    for width in (1, 7, 8, 16, 33, 64):
        a = numbers((5, width), "float32").astype(dtype)
        wide = F.from_numpy(a)[:, :, None].expand(5, width, times).reshape(5, width * times)
        assert np.array_equal(wide.numpy(), a.repeat(times, -1))
        if dtype in ("float32", "uint8"):
            image = F.from_numpy(numbers((2, 3, 4, width), "float32"))
            pooled = image.contiguous().requires_grad_()
            y = F.nn.functional.avg_pool2d(pooled, (1, times), (1, times), ceil_mode=True)
            y.backward(F.from_numpy(numbers(tuple(y.shape), "float32", seed=1)))
            last = F.nn.functional.avg_pool2d(F.ones(1, 1, 1, width), (1, times), (1, times), ceil_mode=True)
            assert F.equal(last, F.ones_like(last))
            g = numbers(tuple(y.shape), "float32", seed=1).repeat(times, -1)[..., :width]
            count = np.minimum(times, width - np.arange(width) // times * times)
            assert np.allclose(pooled.grad.numpy(), g / count, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "bool", "int32"])
def test_a_few_columns_are_summed_down(dtype):
    for columns in (1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 32, 96):
        a = numbers((3001, columns), "float32").astype(dtype)
        t, wide = F.from_numpy(a), a.astype(np.float64)
        limit = {"float16": 0.6, "float32": 2e-3}.get(dtype, 1e-9)
        assert np.allclose(
            t.sum(0).double().numpy(), wide.sum(0), atol=limit, rtol=1e-3 if dtype == "float16" else 0
        )
        assert np.array_equal(t.amax(0).numpy(), a.max(0)) and np.array_equal(
            t[::3].amin(0).numpy(), a[::3].min(0)
        )


def test_one_window_over_a_whole_image():
    a = numbers((4, 40, 7, 7), "float32")
    a[1, 2, 3, 4], a[2, 0, 0, 0] = np.nan, np.inf
    for shape in ((7, 7), (7, 6), (6, 7)):
        x = F.from_numpy(a[..., : shape[0], : shape[1]].copy())
        y = F.nn.functional.avg_pool2d(x, shape)
        assert np.allclose(
            y.numpy(), a[..., : shape[0], : shape[1]].mean((2, 3), keepdims=True), atol=1e-6, equal_nan=True
        )


def test_planes_are_scattered_by_themselves():
    """Rows that tasks share out, whatever else depends on them, in the order of the indices."""
    a, index = numbers((6, 5, 300), "float32"), np.random.RandomState(1).randint(0, 40, (6, 5, 300))
    sums = np.zeros((6, 5, 40))
    for r in np.ndindex(6, 5):
        np.add.at(sums[r], index[r], a[r])
    before, results = F.get_num_threads(), []
    for threads in (1, 2, 3):
        F.set_num_threads(threads)
        results.append(F.zeros(6, 5, 40).scatter_add(2, F.from_numpy(index), F.from_numpy(a)))
    F.set_num_threads(before)
    assert np.allclose(results[0].numpy(), sums, atol=1e-4)
    assert F.equal(results[0], results[1]) and F.equal(results[0], results[2])


def test_a_pools_gradient_has_a_gradient():
    x = F.from_numpy(numbers((1, 2, 6, 5), "float64")).requires_grad_()
    pool = lambda x: F.nn.functional.max_pool2d(x, 3, 2, 1) ** 2  # noqa: E731
    assert F.autograd.gradcheck(pool, (x,)) and F.autograd.gradgradcheck(pool, (x,))


@pytest.mark.parametrize("dtype", [F.bfloat16, F.float16])
def test_a_16_bit_matrix_times_a_vector_is_rounded_once(dtype):
    a = F.from_numpy(numbers((70, 130), "float32")).to(dtype)
    v, w = (F.from_numpy(numbers((n,), "float32", seed=n)).to(dtype) for n in (130, 70))
    bias = F.from_numpy(numbers((70,), "float32", seed=2)).to(dtype)
    calls = {
        "matrix by vector": (lambda a, v, w, b: a @ v),
        "vector by matrix": (lambda a, v, w, b: w @ a),
        "transposed": (lambda a, v, w, b: a.t() @ w),
        "with gaps": (lambda a, v, w, b: a[:, ::2] @ v[::2]),
        "addmv": (lambda a, v, w, b: F.addmv(b, a, v, beta=0.5, alpha=2)),
        "linear": (lambda a, v, w, b: F.nn.functional.linear(v, a, b)),
        "one row": (lambda a, v, w, b: a[:1] @ a.t()),
        "one number": (lambda a, v, w, b: a[:1] @ v[:, None]),
    }
    for name, call in calls.items():
        exact = call(*(t.double() for t in (a, v, w, bias)))
        assert (call(a, v, w, bias) - exact.to(dtype)).abs().max() <= exact.abs().max() * 2**-8, name


def test_permutations_are_the_same_on_every_processor():
    """These sums are of permutations whose numbers were drawn one by one."""
    F.manual_seed(3)
    sums = [
        int((p * F.arange(len(p))).sum()) for p in map(F.randperm, (1, 2, 5, 63, 64, 65, 127, 1000, 10_000))
    ]
    assert sums == [0, 1, 14, 61143, 65259, 68958, 495946, 246148854, 251255642247]


def test_permutations_are_all_equally_likely():
    F.manual_seed(0)
    counts = {}
    for _ in range(2400):
        p = tuple(F.randperm(4).tolist())
        counts[p] = counts.get(p, 0) + 1
    assert len(counts) == 24
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 49.7  # chi square of 23, once in a thousand
    F.manual_seed(1)
    first = F.randperm(100_001)
    assert F.equal(first.sort()[0], F.arange(100_001))
    F.manual_seed(1)
    assert F.equal(F.randperm(100_001), first) and not F.equal(F.randperm(100_001), first)
    # Places and numbers do not go together.
    r = np.corrcoef(first.numpy(), np.arange(100_001))[0, 1]
    assert abs(r) < 0.015


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int64", "uint8"])
@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 1), (1, 4)])
def test_few_long_sums_of_products_are_shared_by_threads_and_keep_their_bits(dtype, rows, columns):
    generator = np.random.default_rng(0)

    def whole(*shape):  # small integers, whose sums are exact
        x = generator.integers(0 if dtype == "uint8" else -2, 3, shape).astype("complex128")
        return x + 1j * generator.integers(-2, 3, shape) if dtype == "complex64" else x

    a, b = whole(rows, 70001), whole(70001, columns)
    given = [x if dtype == "complex64" else x.real for x in (a, b)]
    x, y = (F.tensor(g).to(getattr(F, dtype)) for g in given)
    fractions = [t * 0.3 if t.is_floating_point() or t.is_complex() else t for t in (x, y)]
    threads, seen = F.get_num_threads(), set()
    try:
        for count in (1, 2, 3, 7):
            F.set_num_threads(count)
            seen.add(tuple((fractions[0] @ fractions[1]).flatten().tolist()))
    finally:
        F.set_num_threads(threads)
    assert len(seen) == 1
    expected = a @ b if dtype == "complex64" else (a @ b).real
    wide = F.complex128 if dtype == "complex64" else F.float64
    rounded = F.tensor(expected % 256 if dtype == "uint8" else expected).to(x.dtype).to(wide)
    assert ((x @ y).to(wide) == rounded).all()
    doubled = F.addmm(F.ones(rows, columns).to(x.dtype), x, y, beta=2).to(wide)
    wanted = (2 + expected) % 256 if dtype == "uint8" else 2 + expected
    assert (doubled == F.tensor(wanted).to(x.dtype).to(wide)).all()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("n, k, m", [(4, 1, 8), (33, 100, 65), (300, 17, 31), (3, 4, 5), (64, 0, 9)])
def test_products_of_whole_numbers_are_exact_modulo_their_size(dtype, n, k, m):
    generator = np.random.default_rng(0)
    a, b, c = (generator.integers(0, 2**60, s).astype(dtype) for s in ((n, k), (k, m), (n, m)))
    x, y, z = (F.from_numpy(t) for t in (a, b, c))
    wide = [t.astype("int64") for t in (a, b, c)]
    product = wide[0] @ wide[1]
    assert np.array_equal((x @ y).numpy(), product.astype(dtype))
    assert np.array_equal((y.t() @ x.t().contiguous()).numpy(), product.T.astype(dtype))
    added = (2 * wide[2] + 3 * product).astype(dtype)
    assert np.array_equal(F.addmm(z, x, y, beta=2, alpha=3).numpy(), added)
    pair = F.stack([x, x + 1]) @ y
    assert np.array_equal(pair[1].numpy(), ((a + 1).astype("int64") @ wide[1]).astype(dtype))
