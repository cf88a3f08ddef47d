"""Reductions, norms, losses, pools, indices and determinants where ordinary samples do not go: NaN,
infinities, zeros, nothing at all. The numbers are PyTorch 2.13's unless a comment says why they are not.
"""

import math
from math import inf, nan

import numpy as np
import pytest

import facula as T
from facula.nn import functional as F


def value_and_gradient(f, data, dtype=T.float64):
    x = T.tensor(data, dtype=dtype, requires_grad=True)
    y = f(x)
    y.sum().backward()
    return y.tolist(), x.grad.tolist()


def same(got, want, rtol=1e-6):
    np.testing.assert_allclose(np.asarray(got, float), np.asarray(want, float), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize(
    "f, data, value, gradient",
    [
        (lambda x: x.std(), [3.0, 3.0, 3.0], 0, [0, 0, 0]),
        (lambda x: x.std(0, unbiased=False), [3.0], 0, [0]),
        (lambda x: T.std_mean(x, 0)[0], [2.0, 2.0], 0, [0, 0]),
        (lambda x: T.var_mean(x, 0)[1], [nan, 1.0], nan, [0.5, 0.5]),
        (lambda x: x.norm(), [0.0, 0.0], 0, [0, 0]),
        (lambda x: x.norm(), [1e300], 1e300, [1]),
        (lambda x: x.norm(dim=1), [[5e-324], [-1e300]], [5e-324, 1e300], [[1], [-1]]),
        (lambda x: x.median(), [2.0, 1.0, 2.0, 3.0], 2, [0.5, 0, 0.5, 0]),
        (lambda x: x.median(), [nan, 1.0, nan, 3.0], nan, [0.5, 0, 0.5, 0]),
        (lambda x: x.median(0)[0], [1.0, nan, nan, 3.0], nan, [0, 1, 0, 0]),
        (lambda x: x.norm(3), [0.0, 0.0], 0, [0, 0]),
        (lambda x: x.norm(3), [1e-200, 0.0], 0, [0, 0]),
        (lambda x: x.norm(1.5), [0.0, 0.0], 0, [0, 0]),
        (lambda x: x.norm(0.5), [0.0, 4.0], 4, [0, 1]),
        (lambda x: x.norm(-1), [2.0, inf], 2, [1, 0]),
        (lambda x: x.prod(), nan, nan, 1),
        (lambda x: x.max(), [nan, 1.0, nan], nan, [0.5, 0, 0.5]),
        (lambda x: x.min(), [1.0, nan, 2.0], nan, [0, 1, 0]),
        (lambda x: x.logsumexp(0), [-inf, -inf], -inf, [nan, nan]),
        (lambda x: F.cosine_similarity(x, T.ones_like(x), -1), [0.0, 0.0, 0.0], 0, [57735026.918962574] * 3),
        (lambda x: F.cosine_similarity(x, x, -1, 4.0), [1.0, 2.0, 0.0], 0.3125, [0.05512287, 0.11024575, 0]),
    ],
)
def test_gradients_at_kinks_and_nan(f, data, value, gradient):
    y, g = value_and_gradient(f, data)
    same(y, value)
    same(g, gradient)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_extrema_over_dimensions_have_no_gradient_at_nan(name):
    # PyTorch divides by a count of ties that is 0; its max() and min() spread the gradient over the NaNs.
    y, g = value_and_gradient(lambda x: getattr(x, name)(1), [[nan, 1.0, nan], [2.0, 2.0, 2.0]])
    same(y, [nan, 2])
    same(g, [[nan] * 3, [1 / 3] * 3])


def test_logsumexp_of_nothing_is_the_logarithm_of_zero():
    assert T.empty(0).logsumexp(0).item() == -inf
    assert T.empty(2, 0).logsumexp(1, keepdim=True).tolist() == [[-inf], [-inf]]
    assert T.empty(0, 2).logsumexp(1).shape == (0,)


@pytest.mark.parametrize("p", [-1, -inf, inf])
def test_norms_without_identity_refuse_nothing_at_all(p):
    with pytest.raises((RuntimeError, IndexError)):
        T.empty(0).norm(p)


def test_norm_of_order_one_of_an_empty_matrix_is_zero():
    assert T.linalg.matrix_norm(T.empty(2, 0), 1).item() == 0
    assert T.linalg.norm(T.empty(0, 2), inf).item() == 0


# ---- losses with rows that are ignored


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("row", [[-inf] * 3, [nan, 1, 2], [inf, 0, 0], [1.0, 2, 3]])
def test_cross_entropy_does_not_look_at_ignored_rows(row, smoothing):
    x = T.tensor([row, [1.0, 1.0, 1.0]])
    t = T.tensor([-100, 0])
    loss = F.cross_entropy(x, t, label_smoothing=smoothing)
    assert loss.item() == pytest.approx(math.log(3))
    each = F.cross_entropy(x, t, label_smoothing=smoothing, reduction="none").tolist()
    assert each == [0, pytest.approx(math.log(3))]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, [0.5, 1.0, 2.0]])
def test_cross_entropy_of_ignored_targets_alone_has_no_gradient(smoothing, weight):
    x = T.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]], requires_grad=True)
    w = None if weight is None else T.tensor(weight)
    loss = F.cross_entropy(x, T.tensor([-100, -100]), w, label_smoothing=smoothing)
    loss.backward()
    assert math.isnan(loss.item())
    assert x.grad.tolist() == [[0.0] * 3] * 2


def test_cross_entropy_of_no_classes_and_no_rows():
    assert math.isnan(F.cross_entropy(T.zeros(0, 3), T.zeros(0, 3)).item())
    assert math.isnan(F.cross_entropy(T.zeros(2, 0), T.zeros(2, 0)).item())
    assert F.cross_entropy(T.zeros(2, 0), T.zeros(2, 0), reduction="sum").item() == 0


# ---- pooling to a size


def windows(m, n):
    return [(i * m // n, -(-(i + 1) * m // n)) for i in range(n)]


SIZES = [
    ((7,), (3,)),
    ((4,), (7,)),
    ((6,), (2,)),
    ((1,), (3,)),
    ((5, 7), (2, 3)),
    ((4, 6), (2, 6)),
    ((3, 2), (5, 4)),
]


@pytest.mark.parametrize("given, wanted", SIZES)
@pytest.mark.parametrize("special", [None, inf, -inf, nan])
def test_adaptive_pools_take_each_window_alone(given, wanted, special):
    rng = np.random.default_rng(0)
    a = rng.permutation(2 * 3 * math.prod(given)).reshape(2, 3, *given).astype(np.float64)
    if special is not None:
        a[0, 0].flat[0] = a[1, 2].flat[-1] = special
    x = T.tensor(a.tolist(), dtype=T.float64, requires_grad=True)
    d = len(given)
    means, tops, at = (
        np.empty((2, 3, *wanted)),
        np.empty((2, 3, *wanted)),
        np.empty((2, 3, *wanted), np.int64),
    )
    mean_gradient, top_gradient = np.zeros_like(a), np.zeros_like(a)
    place = np.arange(math.prod(given)).reshape(given)
    for o in np.ndindex(*wanted):
        inside = tuple(slice(*windows(m, n)[k]) for m, n, k in zip(given, wanted, o))
        part = a[(..., *inside)].reshape(2, 3, -1)
        means[(..., *o)] = part.mean(-1)
        tops[(..., *o)] = part.max(-1)
        best = np.argmax(part, -1)  # the first NaN, if there is one
        at[(..., *o)] = place[inside].reshape(-1)[best]
        mean_gradient[(..., *inside)] += 1 / part.shape[-1]
        for n, c in np.ndindex(2, 3):
            top_gradient[n, c].flat[at[(n, c, *o)]] += 1
    pool = getattr(F, f"adaptive_avg_pool{d}d")(x, wanted)
    np.testing.assert_allclose(np.asarray(pool.tolist()), means, rtol=1e-12)
    pool.backward(T.ones_like(pool))
    np.testing.assert_allclose(np.asarray(x.grad.tolist()), mean_gradient, rtol=1e-12)
    x.grad = None
    pool, found = getattr(F, f"adaptive_max_pool{d}d")(x, wanted, True)
    np.testing.assert_array_equal(np.asarray(pool.tolist()), tops)
    np.testing.assert_array_equal(np.asarray(found.tolist()), at)
    pool.backward(T.ones_like(pool))
    np.testing.assert_allclose(np.asarray(x.grad.tolist()), top_gradient, rtol=1e-12)


def test_adaptive_pools_without_batch_and_in_channels_last():
    x = T.randn(2, 3, 5, 7)
    want = F.adaptive_avg_pool2d(x, (2, 3))
    assert T.equal(F.adaptive_avg_pool2d(x[0], (2, 3)), want[0])
    last = F.adaptive_avg_pool2d(x.contiguous(memory_format=T.channels_last), (2, 3))
    assert T.allclose(last, want, rtol=1e-5)
    assert F.adaptive_avg_pool1d(x[0], 3).shape == (3, 5, 3)
    assert math.isnan(F.adaptive_avg_pool1d(T.empty(1, 1, 0), 1).item())
    with pytest.raises(RuntimeError, match="non-zero size"):
        F.adaptive_avg_pool1d(T.empty(1, 1, 0), 2)


# ---- indices


def refused(f):
    try:
        return f().tolist()
    except (IndexError, RuntimeError) as e:
        return type(e).__name__


INDEX, RUN = "IndexError", "RuntimeError"
X = [[5.0, 6.0], [7.0, 8.0]]


@pytest.mark.parametrize(
    "f, answers",  # of the indices -1, -2, -3 and 2
    [
        (lambda x, i: x.index_fill(0, i, 2), [[[5, 6], [2, 2]], [[2, 2], [7, 8]], INDEX, INDEX]),
        (lambda x, i: x.index_fill(0, i, T.tensor(2.0)), [[[5, 6], [2, 2]], [[2, 2], [7, 8]], INDEX, INDEX]),
        (lambda x, i: x.clone().index_fill_(0, i, 2), [[[5, 6], [2, 2]], [[2, 2], [7, 8]], INDEX, INDEX]),
        (lambda x, i: x[i], [[[7, 8]], [[5, 6]], INDEX, INDEX]),
        (lambda x, i: x.index_put((i,), T.tensor(9.0)), [[[5, 6], [9, 9]], [[9, 9], [7, 8]], INDEX, INDEX]),
        (lambda x, i: x.take(i), [[8], [7], [6], [7]]),
        (lambda x, i: x.index_select(0, i), [INDEX] * 4),
        (lambda x, i: x.index_copy(0, i, x[:1]), [INDEX] * 4),
        (lambda x, i: x.index_add(0, i, x[:1]), [RUN] * 4),
        (lambda x, i: x.gather(0, i.reshape(1, 1)), [RUN] * 4),
        (lambda x, i: x.scatter(0, i.reshape(1, 1), 1.0), [RUN] * 4),
        (lambda x, i: x.scatter_add(0, i.reshape(1, 1), x), [RUN] * 4),
        (lambda x, i: F.embedding(i, x), [INDEX] * 4),
    ],
)
def test_which_indices_count_from_the_end(f, answers):
    x = T.tensor(X)
    assert [refused(lambda i=i: f(x, T.tensor([i]))) for i in (-1, -2, -3, 2)] == answers


def test_gradient_of_index_fill_at_a_negative_index():
    assert value_and_gradient(lambda x: x.index_fill(0, T.tensor([-1]), 2.0), X)[1] == [[1, 1], [0, 0]]


def test_embedding_scales_gradients_by_frequency():
    def rows(**options):
        return lambda w: F.embedding(T.tensor([[0, 2], [0, 0]]), w, scale_grad_by_freq=True, **options)

    w = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    same(value_and_gradient(rows(), w)[1], [[1, 1], [0, 0], [1, 1]])
    same(value_and_gradient(rows(padding_idx=0), w)[1], [[0, 0], [0, 0], [1, 1]])


# ---- determinants


@pytest.mark.parametrize(
    "a, gradient",
    [
        ([[1.0, 2.0], [2.0, 4.0]], [[-inf, inf], [inf, -inf]]),
        ([[0.0, 0.0], [0.0, 0.0]], [[nan, nan], [nan, inf]]),
        ([[4.0, 1.0], [1.0, 3.0]], [[3 / 11, -1 / 11], [-1 / 11, 4 / 11]]),
        ([[0.0]], [[inf]]),
    ],
)
def test_slogdet_of_singular_matrices_has_infinite_gradients(a, gradient):
    y, g = value_and_gradient(lambda x: T.linalg.slogdet(x)[1], a)
    same(g, gradient)
    assert math.isinf(y) == np.isinf(gradient).any()
    batch = value_and_gradient(
        lambda x: T.linalg.slogdet(x)[1], [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 4.0]]]
    )
    same(batch[1], [[[0.5, 0], [0, 1]], [[-inf, inf], [inf, -inf]]])


def test_slogdet_at_infinity_and_nan():
    assert [t.item() for t in T.linalg.slogdet(T.tensor([[inf, 1.0], [2.0, 3.0]]))] == [1, inf]
    sign, size = T.linalg.slogdet(T.tensor([[nan, 1.0], [2.0, 3.0]]))
    assert sign.item() == 0 and math.isnan(size.item())
    assert T.logdet(T.tensor([[inf, 1.0], [2.0, 3.0]])).item() == inf


def test_gradient_of_the_determinant_of_a_singular_matrix_is_its_cofactors():
    # PyTorch gives 0, the product of the determinant and an inverse that is not there.
    same(value_and_gradient(T.linalg.det, [[1.0, 2.0], [2.0, 4.0]])[1], [[4, -2], [-2, 1]])


@pytest.mark.parametrize(
    "upper, a, x",
    [
        (True, [[0.0, 1.0], [1.0, 0.0]], [-inf, inf]),
        (True, [[0.0, 0.0], [0.0, 0.0]], [nan, inf]),
        (False, [[0.0, 0.0], [0.0, 0.0]], [inf, nan]),
    ],
)
def test_triangular_systems_with_zeros_on_the_diagonal(upper, a, x):
    same(T.linalg.solve_triangular(T.tensor(a), T.ones(2, 1), upper=upper).squeeze(1).tolist(), x)


@pytest.mark.parametrize("dtype", [T.float32, T.float64, T.complex64, T.complex128])
@pytest.mark.parametrize("n", [1, 2, 5, 70])
def test_inverses_solutions_and_determinants_of_matrices_that_are_not_symmetric(dtype, n):
    T.manual_seed(n)
    a = T.randn(3, n, n, dtype=dtype) + n * T.eye(n, dtype=dtype)
    b = T.randn(3, n, 2, dtype=dtype)
    tol = {"rtol": 1e-3, "atol": 1e-4}
    assert T.allclose(a @ T.linalg.inv(a), T.eye(n, dtype=dtype).expand(3, n, n), **tol)
    assert T.allclose(a @ T.linalg.solve(a, b), b, **tol)
    sign, size = T.linalg.slogdet(a)
    want = np.linalg.slogdet(np.asarray(a.tolist()))
    np.testing.assert_allclose(np.asarray(sign.tolist()), want[0], rtol=1e-4)
    np.testing.assert_allclose(np.asarray(size.tolist()), want[1], rtol=1e-4)
    a.requires_grad_()
    (g,) = T.autograd.grad(T.linalg.slogdet(a)[1].sum(), a)
    assert T.allclose(g, T.linalg.inv(a).mH, **tol)


# ---- statistics far from 0


@pytest.mark.parametrize(
    "shape, dim",
    [((1000,), None), ((1 << 20,), None), ((300, 4000), 1), ((100000, 16), 0), ((7, 333, 65), None)],
)
def test_variance_a_hundred_thousand_deviations_from_zero(shape, dim):
    rng = np.random.default_rng(1)
    a = (1e5 + rng.standard_normal(shape)).astype(np.float32)
    x = T.tensor(a)
    want = a.astype(np.float64).var(axis=dim)
    got = np.asarray(T.var(x, dim, correction=0).tolist())
    assert np.abs(got / want - 1).max() < 2e-6


def test_variance_that_overflows_is_infinite():
    x = T.tensor([1e30, -1e30, 1e30, -1e30])
    assert x.var().item() == inf and T.cat([x] * 5000).var().item() == inf


# ---- out= of a result whose dtype is not the operand's


@pytest.mark.parametrize("f", [T.linalg.vector_norm, T.norm])
def test_norms_of_complex_tensors_are_written_whole(f):
    z = T.tensor([1 + 2j, 3 + 4j])
    out = T.empty(0)
    assert f(z, out=out) is out and out.item() == pytest.approx(math.sqrt(30))
    for dtype in (T.float64, T.complex64, T.float16):
        with pytest.raises(RuntimeError, match="dtype"):
            f(z, out=T.empty((), dtype=dtype))
    out = T.empty((), dtype=T.float64)
    assert f(z.real, dtype=T.float64, out=out).item() == pytest.approx(math.sqrt(10))


@pytest.mark.parametrize("dtype", [T.float32, T.bfloat16])
def test_a_long_product_is_rounded_once(dtype):
    x = T.tensor(np.random.default_rng(0).uniform(0.5, 1.5, 200_000), dtype=dtype)
    exponent = x.double().log2().sum() / len(x)
    x = (x.double() / 2**exponent).to(T.float32)  # whose product, but not those of its parts, is near 1
    want = T.prod(x.double()).item()
    assert T.prod(x).item() == pytest.approx(want, rel=1e-7)
    assert T.prod(T.stack([x, x.flip(0)]), 1).tolist() == pytest.approx([want] * 2, rel=1e-7)
    assert T.prod(T.full((100_000,), 0.9)) == 0
    x[7] = float("nan")
    assert T.prod(x).isnan()


def test_median_of_nan_is_the_first_of_them_and_of_nothing_none():
    assert T.tensor([[1.0, nan, nan], [3.0, 1.0, 2.0]]).median(1)[1].tolist() == [1, 2]
    assert math.isnan(T.zeros(0).median().item())
    assert T.zeros(0, 3, dtype=T.int64).median().item() == -(2**63)
    assert T.zeros(0, dtype=T.uint8).median().item() == 0


def test_any_and_all_over_an_empty_list_reduce_nothing():
    x = T.tensor([[1.0, 0.0], [nan, -0.0]])
    assert x.any(dim=[]).tolist() == x.all(dim=[], keepdim=True).tolist() == [[True, False], [True, False]]
    assert x.any().item() and not x.all().item()


@pytest.mark.parametrize("correction", [3.0, 7.0, 1e300, inf, nan])
def test_a_variance_without_degrees_of_freedom_is_infinite(correction):
    assert T.tensor([1.0, 2.0, 4.0]).var(correction=correction).item() == inf
    assert T.std_mean(T.tensor([1.0, 2.0, 4.0]), 0, correction=correction)[0].item() == inf


def test_std_mean_of_float16_does_not_overflow_on_the_way():
    x = T.tensor([65504.0, 0.0, 1.0, 2.0], dtype=T.float16, requires_grad=True)
    y = T.std_mean(x, 0)[0]
    y.backward()
    assert abs(y.item() - 32752) <= 32 and not x.grad.isnan().any()


def test_norms_of_small_float16_numbers_have_finite_gradients():
    x = T.full((12,), 6e-8, dtype=T.float16, requires_grad=True)
    x.norm().backward()
    assert x.grad.tolist() == [T.tensor(1 / 3, dtype=T.float16).item()] * 12


def test_the_order_of_a_norm_is_no_complex_number():
    with pytest.raises(RuntimeError, match="non-complex"):
        T.ones(2).norm(1j)


def test_a_mean_beside_its_variance_is_none_where_there_are_infinities():
    x = T.tensor([[inf, 1.0, 2.0], [1.0, 2.0, 6.0]])
    for f in (T.var_mean, T.std_mean):
        y = f(x, 1)[1].tolist()
        assert math.isnan(y[0]) and y[1] == 3
    assert T.var_mean(T.tensor(inf))[1].item() == inf
    z = T.var_mean(T.tensor([[1 + 2j, 3 - 4j]]), 1)[1]
    assert z.tolist() == [2 - 1j]


@pytest.mark.parametrize("dtype", [T.float32, T.float64, T.complex64, T.complex128])
@pytest.mark.parametrize("place", range(9))
def test_what_is_made_of_a_matrix_with_nan_has_no_numbers(dtype, place):
    a = T.eye(3, dtype=dtype) * 3 + 1
    a.view(-1)[place] = nan
    assert T.linalg.inv(a).isnan().all().item()
    assert T.linalg.solve(a, T.ones(3, 2, dtype=dtype)).isnan().all().item()
    a.requires_grad_()
    assert T.autograd.grad(T.linalg.slogdet(a)[1], a)[0].isnan().all().item()


def test_gradients_of_determinants_of_rank_below_n_minus_1_are_0():
    assert not T.autograd.grad(T.linalg.det(x := T.zeros(3, 3, requires_grad=True)), x)[0].any().item()
    assert value_and_gradient(T.linalg.det, [[0.0]])[1] == [[1.0]]
    g = value_and_gradient(T.linalg.det, [[0.0, 0, 0], [0, 2, 0], [0, 0, 3]])[1]
    assert g == [[6, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_the_logarithm_of_a_negative_complex_determinant_is_on_the_upper_side():
    z = T.logdet(T.tensor([[0, 1], [1, 0]], dtype=T.complex128)).item()
    assert (z.real, z.imag) == (0, math.pi)


def test_complex128_rms_norm_has_the_eps_of_float64():
    x = T.tensor([[1e-8 + 1e-8j, 2e-8 + 0j]], dtype=T.complex128)
    eps = np.finfo(np.float64).eps
    z = np.asarray(x.tolist())
    want = z / np.sqrt((z * z).mean(-1, keepdims=True) + eps)
    np.testing.assert_allclose(np.asarray(F.rms_norm(x, (2,)).tolist()), want, rtol=1e-14)


@pytest.mark.parametrize(
    "f, error",
    [
        (lambda: F.rms_norm(T.ones(3, dtype=T.int64), (3,)), NotImplementedError),
        (lambda: F.rms_norm(T.tensor(1.0), (3,)), ValueError),
        (lambda: F.batch_norm(T.ones(3, 2), None, None, training=True, eps=0.0), ValueError),
        (lambda: F.batch_norm(T.tensor(1.0), None, None, training=True), IndexError),
        (lambda: F.max_pool2d(T.ones(1, 0, 4, 4), 2), RuntimeError),
        (lambda: F.avg_pool2d(T.ones(0, 4, 4), 2), RuntimeError),
        (lambda: T.mv(T.tensor(1.0), T.ones(2)), IndexError),
        (lambda: T.var(T.ones(3, dtype=T.int64), 0), RuntimeError),
        (lambda: T.kthvalue(T.ones(2, 0), 1), IndexError),
        (lambda: T.topk(T.tensor(1.0), 1, dim=1), IndexError),
        (lambda: T.var(T.tensor(1.0), dim=(0, -1)), RuntimeError),
    ],
)
def test_what_cannot_be_is_refused_as_pytorch_refuses_it(f, error):
    with pytest.raises(error):
        f()


@pytest.mark.parametrize("scale", [1e18, 1e30, 3e37, 1e-20, 1e-25, 1e-42])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_squares_of_float32_neither_overflow_nor_vanish(scale, dim):
    x = (np.sin(np.arange(1000.0) * 1.7) * scale).astype(np.float32).reshape(20, 50)
    ours = T.tensor(x)
    with np.errstate(over="ignore"):
        var = np.var(x.astype(np.float64), axis=dim, ddof=1).astype(np.float32)
        std = np.std(x.astype(np.float64), axis=dim, ddof=1).astype(np.float32)
        mean = np.mean(x.astype(np.float64), axis=dim).astype(np.float32)
    np.testing.assert_array_equal(ours.var(dim).numpy(), var)
    np.testing.assert_array_max_ulp(ours.std(dim).numpy(), std, 1)
    for found, wanted in zip(T.std_mean(ours, dim), (std, mean)):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=scale * 1e-12)


def test_pools_take_the_last_of_several_nans():
    nan = float("nan")
    x = T.tensor([[[1.0, nan, 5.0, nan, 7.0, 2.0]]], requires_grad=True)
    y, at = F.max_pool1d(x, 6, return_indices=True)
    assert y.isnan().all() and at.item() == 3
    y.backward(T.ones_like(y))
    assert x.grad.tolist() == [[[0, 0, 0, 1, 0, 0]]]
    image = T.tensor([[[[2.0, 2.0], [nan, nan]]]])
    assert F.max_pool2d(image, 2, return_indices=True)[1].item() == 3
    assert F.adaptive_max_pool2d(image, 1, return_indices=True)[1].item() == 3
    assert F.max_pool2d(image[:, :, :1], (1, 2), return_indices=True)[1].item() == 0
    assert image.flatten().argmax().item() == 2


def test_the_mean_of_nothing_has_a_gradient_of_nan():
    x = T.full((3,), float("nan"), requires_grad=True)
    T.nanmean(x).backward()
    assert x.grad.isnan().all()
    y = T.tensor([1.0, float("nan"), 3.0], requires_grad=True)
    T.nanmean(y).backward()
    assert y.grad.tolist() == [0.5, 0, 0.5]


# ---- hashes


@pytest.mark.parametrize(
    "x",
    [
        np.array([[1.5, -0.0, np.nan], [np.inf, 2.0, 1e-300]]),
        np.array([[1.5, -0.0, np.inf], [3e-40, 2.0, 1.0]], np.float32),
        np.array([[-1, 2, 3], [127, -128, 0]], np.int8),
        np.array([[255, 2, 3], [7, 128, 0]], np.uint8),
        np.array([[True, False, True], [True, True, True]]),
        np.arange(14, dtype=np.int64).reshape(2, 7) ** 9,
    ],
)
def test_a_hash_is_the_exclusive_or_of_the_elements_as_64_bits(x):
    wide = x.astype(np.float64 if x.dtype.kind == "f" else np.int64).view(np.uint64)
    t = T.from_numpy(x)
    assert T.hash_tensor(t).item() == np.bitwise_xor.reduce(wide, None)
    for dim in (0, 1, -1):
        for keepdim in (False, True):
            found = t.hash_tensor(dim, keepdim=keepdim)
            assert found.dtype == T.uint64
            wanted = np.bitwise_xor.reduce(wide, dim, keepdims=keepdim)
            assert list(found.shape) == list(wanted.shape) and found.tolist() == wanted.tolist()
    assert T.hash_tensor(t.T, (0, 1)).item() == T.hash_tensor(t).item()


def test_a_hash_refuses_what_has_none():
    for call, error, why in (
        (lambda: T.hash_tensor(T.zeros(0)), RuntimeError, "reduction dim"),
        (lambda: T.hash_tensor(T.zeros(2, 0), 1), IndexError, "dim 1 to have non-zero size"),
        (lambda: T.hash_tensor(T.zeros(2), mode=1), RuntimeError, "mode: 1"),
        (lambda: T.hash_tensor(T.zeros(2, 2), (0, 0)), RuntimeError, "appears multiple times"),
        (lambda: T.hash_tensor(T.zeros(2) + 1j), NotImplementedError, "complex64"),
        (lambda: T.hash_tensor(T.zeros(2), out=T.zeros((), dtype=T.int64)), RuntimeError, "uint64"),
    ):
        with pytest.raises(error, match=why):
            call()
    assert T.hash_tensor(T.zeros(2, 0), 0).shape == (0,)


def test_an_out_with_as_many_elements_keeps_its_shape_where_numbers_are_counted():
    for make, n in (
        (lambda out: T.arange(6, out=out), 6),
        (lambda out: T.linspace(0, 5, 6, out=out), 6),
        (lambda out: T.linspace(T.tensor(0.0), T.tensor(5.0), 6, out=out), 6),
    ):
        out = T.zeros(2, 3)
        assert make(out) is out and out.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
        every_other = T.zeros(2, 3, 2)[..., 0]
        make(every_other)
        assert every_other.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] and not every_other.is_contiguous()
        assert make(T.zeros(4)).shape == (n,)


def test_reductions_are_computed_in_the_dtype_of_a_wider_out():
    h = T.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 5.0]], dtype=T.float16)
    for f, want in (
        (T.std, [1.0, 2.309401035308838]),
        (T.var, [1.0, 5.333333492279053]),
        # Exact; PyTorch rounds what is summed to 16 bits.
        (T.logsumexp, [2.4076059644443806, 5.035976299748193]),
    ):
        same(f(h, 1, out=T.empty(2)), want, rtol=2e-7)


@pytest.mark.parametrize(
    "call, why",
    [
        (lambda h, z: T.std(h, out=T.empty(())), "std: one number of float16 .* float32"),
        (lambda h, z: T.var(h[:1], 1, out=T.empty(1, dtype=T.float64)), "var: one number .* float64"),
        (lambda h, z: T.mean(z, out=T.empty(())), "mean: .*complex64.* float32"),
        (lambda h, z: T.logsumexp(h, 1, out=T.empty(2, dtype=T.int64)), "logsumexp: .*int64"),
        (lambda h, z: T.logsumexp(z, 1, out=T.empty(2, dtype=T.float64)), "logsumexp: .*complex64.*float64"),
    ],
)
def test_an_out_that_pytorch_has_no_kernel_for_is_refused(call, why):
    h = T.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 5.0]], dtype=T.float16)
    with pytest.raises(RuntimeError, match=why):
        call(h, h.to(T.complex64))


def test_statistics_of_batch_norm_are_written_by_channel():
    x, w, zero = T.ones(4, 3, 2), T.ones(3), T.zeros(3)
    for f in (T.native_batch_norm, T._native_batch_norm_legit):
        with pytest.raises(RuntimeError, match=r"1 dimension.*\[3, 1\]"):
            f(x, w, w, zero, w, False, 0.1, 1e-5, out=(T.empty(4, 3, 2), T.empty(3, 1), T.empty(3)))
        out = (T.empty(0), T.empty(3, 1), T.empty(3))
        assert f(x, w, w, zero, w, True, 0.1, 1e-5, out=out)[1].shape == (3,)


def test_margins_that_are_met_exactly_or_are_no_numbers_have_neither_loss_nor_gradient():
    rows = [[0.5, 2.0, 1.5], [nan, 0.0, 1.0], [0.0, nan, 3.0], [inf, 0.0, 0.0], [2.0, 1.0, 1.0]]
    weight = T.tensor([0.5, nan, 2.0], dtype=T.float64)
    none, third = [0, 0, 0], 1 / 6
    for p, values, gradients in (
        (1, [0.75, 0, 2 / 3, 0, 0], [[-2 * third, third, third], none, [-third, 0, third], none, none]),
        (2, [41 / 24, 0, 8 / 3, 0, 0], [[-1.5, 5 / 6, 2 / 3], none, [-4 / 3, 0, 4 / 3], none, none]),
    ):
        value, gradient = value_and_gradient(
            lambda x, p=p: F.multi_margin_loss(
                x, T.zeros(5, dtype=T.int64), p, weight=weight, reduction="none"
            ),
            rows,
        )
        same(value, values)
        same(gradient, gradients)
    labels = T.tensor([[0, -1, 0]] * 5)
    value, gradient = value_and_gradient(
        lambda x: F.multilabel_margin_loss(x, labels, reduction="none"), rows
    )
    same(value, [1.5, 0, 4 / 3, 0, 0])
    same(gradient, [[-2 / 3, 1 / 3, 1 / 3], none, [-1 / 3, 0, 1 / 3], none, none])
