"""Faults that the generated edges of newer operators found: expected are PyTorch's numbers, or exact ones."""

import math
import secrets

import facula.nn.functional as fn
import numpy as np
import pytest

import facula as F

nan, inf = float("nan"), float("inf")


def gradient(f, *values, dtype=F.float64):
    xs = [F.tensor(v, dtype=dtype, requires_grad=True) for v in values]
    f(*xs).sum().backward()
    return [x.grad.tolist() for x in xs]


def same(got, want):
    np.testing.assert_allclose(np.array(got, float), np.array(want, float), rtol=1e-6)


@pytest.mark.parametrize("dtype", [F.float32, F.float64])
def test_histc_counts_where_the_range_times_the_bins_overflows(dtype):
    top = F.finfo(dtype).max
    assert F.histc(F.tensor([0.0, 1.0, top], dtype=dtype), bins=4).tolist() == [2, 0, 0, 1]
    assert F.histc(F.tensor([-top, 1.0, top], dtype=dtype), bins=4).tolist() == [1, 0, 1, 1]
    assert F.histc(F.tensor([top, top], dtype=dtype), bins=4).tolist() == [0, 0, 0, 2]


def test_ctc_loss_passes_nan_on_and_takes_targets_of_any_dtype():
    x = F.tensor(np.log(np.full((4, 1, 3), 1 / 3)))
    y = F.tensor([[1, 2]])
    want = fn.ctc_loss(x, y, [4], [2]).item()
    assert fn.ctc_loss(x, y.to(F.float32), [4], [2]).item() == want
    x[0, 0, 0] = nan
    assert math.isnan(fn.ctc_loss(x, y, [4], [2]).item())


@pytest.mark.parametrize("upper", [False, True])
def test_gradients_of_cholesky_factors_are_those_of_the_product_of_all_of_them(upper):
    """As PyTorch's: of L L^H, not of the triangle that the solver reads."""
    rng = np.random.default_rng(0)
    lower = np.tril(rng.normal(size=(3, 3))) + 3 * np.eye(3)
    given, b = lower.T.copy() if upper else lower, rng.normal(size=(3, 2))

    def product(x):
        return x.mT @ x if upper else x @ x.mT

    weights = F.tensor(rng.normal(size=(3, 3)))
    same(
        gradient(lambda x: F.cholesky_inverse(x, upper) * weights, given),
        gradient(lambda x: F.linalg.inv(product(x)) * weights, given),
    )
    ours = gradient(lambda b, x: F.cholesky_solve(b, x, upper) * weights[:, :2], b, given)
    whole = gradient(lambda b, x: F.linalg.solve(product(x), b) * weights[:, :2], b, given)
    for got, want in zip(ours, whole):
        same(got, want)


def test_solve_ex_of_a_singular_matrix_has_a_gradient():
    (g,) = gradient(
        lambda a: F.linalg.solve_ex(a, F.ones(2, 1, dtype=F.float64))[0], [[1.0, 1.0], [1.0, 1.0]]
    )
    assert not np.isfinite(g).all()


def test_renorm_leaves_rows_of_nan_and_their_gradient_alone():
    (g,) = gradient(lambda x: F.renorm(x, 2, 0, 1.0), [[nan, 1.0], [0.1, 0.2]])
    same(g, [[1, 1], [1, 1]])
    assert F.renorm(F.tensor([[3.0, 4.0]]), 2, 0, 1e300).tolist() == [[3, 4]]


def test_logit_has_infinite_slopes_at_its_ends_and_none_outside():
    (g,) = gradient(F.logit, [0.0, 1.0, -1.0, 2.0, nan, 0.5])
    same(g, [inf, inf, nan, nan, nan, 4])
    (g,) = gradient(lambda x: F.logit(x, 0.25), [0.0, 0.25, 0.75, 0.8, nan])
    same(g, [0, 16 / 3, 16 / 3, 0, nan])


def test_slopes_where_squares_vanish():
    same(gradient(F.sinc, [1e-200, 0.0]), [[-(math.pi**2) / 3e200, 0]])
    same(gradient(lambda x: F.cumprod(x, 1), [[5e-324], [nan]]), [[[1], [1]]])


def test_the_condition_of_what_is_no_number_is_infinite():
    for p in (1, "fro", inf):
        assert F.linalg.cond(F.tensor([[nan, 0.0], [0.0, 1.0]]), p).item() == inf


def test_distances_pass_nan_on_to_their_gradients():
    for p in (1.0, 2.0, inf):
        (g,) = gradient(lambda x, p=p: fn.pdist(x, p), [[nan, 0.0], [1.0, 1.0]])
        assert math.isnan(g[0][0]) and math.isnan(g[1][0])


def test_indices_and_rates_that_do_not_fit_are_refused():
    x = F.zeros(3, 2)
    for at in (-1, 3):
        with pytest.raises(IndexError, match="index_reduce"):
            F.index_reduce(x, 0, F.tensor([at]), F.ones(1, 2), "mean")
    with pytest.raises(RuntimeError, match="poisson"):
        F.poisson(F.tensor([1.0, nan]))
    with pytest.raises(NotImplementedError, match="bincount"):
        F.bincount(F.tensor([1.0]))


def test_least_common_multiples_of_few_bits_wrap_once():
    assert F.lcm(F.tensor([19], dtype=F.int8), F.tensor([-9], dtype=F.int8)).tolist() == [-85]


def test_attention_without_heads_has_gradients():
    q = F.zeros(1, 0, 5, 4, requires_grad=True)
    fn.scaled_dot_product_attention(q, F.zeros(1, 0, 6, 4), F.zeros(1, 0, 6, 4)).sum().backward()
    assert q.grad.shape == (1, 0, 5, 4)


def test_cells_refuse_weights_of_another_number_of_gates():
    one, bias = F.ones(1, 1), F.ones(1)
    with pytest.raises(RuntimeError, match=r"lstm_cell: weight_ih first dim must be 4 \* hidden_size = 4"):
        F.lstm_cell(one, [one, one], one, one, bias, bias)
    with pytest.raises(RuntimeError, match=r"gru_cell: weight_hh first dim must be 3 \* hidden_size = 3"):
        F.gru_cell(one, one, F.ones(3, 1), one, F.ones(3), bias)
    cell = one.unsqueeze(0)
    with pytest.raises(RuntimeError, match=r"lstm: weight_ih first dim must be 4 \* hidden_size = 4"):
        F.lstm(cell, [cell, cell], [one, one, bias, bias], True, 1, 0.0, False, False, False)


def test_logspace_overflows_to_infinity():
    powers = F.logspace(300, 1, 3)
    assert powers[0] == float("inf") and powers[2] == 10


def test_as_strided_scatter_gives_gradients_to_what_stays():
    x, src = F.zeros(3, 4, requires_grad=True), F.ones(3, 2, requires_grad=True)
    weights = F.arange(12.0).reshape(3, 4)
    (F.as_strided_scatter(x, src, (3, 2), (2, 1), 1) * weights).sum().backward()
    assert x.grad.flatten().tolist() == [0.0] * 7 + [7.0, 8.0, 9.0, 10.0, 11.0]
    assert src.grad.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


@pytest.mark.parametrize("align", [False, True])
def test_places_of_no_number_read_an_end_and_places_at_an_end_have_no_slope(align):
    image = F.arange(12.0).reshape(1, 1, 3, 4)
    for at, want in ((nan, 0.0), (inf, 11.0), (-inf, 0.0)):
        grid = F.full((1, 1, 1, 2), at)
        assert F.grid_sampler(image, grid, 0, 1, align).item() == want
    volume = F.arange(24.0).reshape(1, 1, 2, 3, 4)
    assert F.grid_sampler(volume, F.full((1, 1, 1, 1, 3), nan), 0, 1, align).item() == 23
    edge = 1.0 if align else 0.75
    (slope,) = gradient(lambda g: F.grid_sampler(image.to(F.float64), g, 0, 1, align), [[[[edge, 0.0]]]])
    assert slope[0][0][0][0] == 0 and slope[0][0][0][1] != 0


def test_places_of_affine_grids_of_integers_are_cut_off():
    theta = F.tensor([[[1, 0, 2], [0, 1, 3]]], dtype=F.int32)
    assert F.affine_grid_generator(theta, [1, 1, 2, 3], True).tolist() == [
        [[[1, 2], [2, 2], [3, 2]], [[1, 4], [2, 4], [3, 4]]]
    ]
    turned = F.affine_grid_generator(theta.to(F.complex64) * 1j, [1, 1, 2, 3], True)
    assert turned.real.abs().max().item() == 0 and turned.imag[0, 0, 0].tolist() == [1, 2]


def test_infinite_matrices_have_no_singular_values_and_rank_0():
    a = F.eye(3, dtype=F.float64)
    a[1, 1] = inf
    assert all(math.isnan(s) for s in F.linalg.svdvals(a).tolist())
    assert F.linalg.matrix_rank(a).item() == 0 and F.linalg.matrix_rank(a, hermitian=True).item() == 0
    assert F.linalg.pinv(a).abs().max().item() == 0
    assert all(math.isnan(s) for s in F.linalg.eigvalsh(a).tolist())
    a[0, 0] = nan
    for f in (F.linalg.svdvals, F.linalg.matrix_rank, F.linalg.pinv, F.linalg.eigvalsh):
        with pytest.raises(F.linalg.LinAlgError):
            f(a)


def test_only_one_triangle_of_hermitian_matrices_is_read():
    a = F.tensor([[1.0, nan, inf], [0.0, 2.0, nan], [0.0, 0.0, 3.0]])
    assert F.linalg.eigvalsh(a).tolist() == [1, 2, 3]


def test_nothing_behind_a_column_that_is_not_finite_is_a_number():
    a = np.random.default_rng(0).normal(size=(4, 3))
    a[2, 1] = inf
    q, r = (x.numpy() for x in F.linalg.qr(F.tensor(a)))
    want = np.linalg.qr(a[:, :1])
    same(q[:, :1], want[0])
    assert np.isnan(q[:, 1:]).all() and np.isnan(r[1:, 2]).all() and math.isnan(r[1, 1])


@pytest.mark.parametrize("dtype", [F.float64, F.complex128])
def test_pivots_that_are_no_numbers_stay(dtype):
    a = F.tensor([[nan, 1.0, 2.0], [3.0, 1.0, 0.0], [5.0, 4.0, 1.0]]).to(dtype)
    lu, pivots = F.linalg.lu_factor(a)
    assert pivots.tolist() == [1, 2, 3] and lu[1:].isnan().all()


def test_ties_of_extrema_do_not_count_what_is_left_out():
    low = F.full((2, 2), -inf)
    (g,) = gradient(
        lambda x: F.index_reduce(F.zeros(1, 2), 0, F.tensor([0, 0]), x, "amax", include_self=False),
        low.tolist(),
        dtype=F.float32,
    )
    assert g == [[0.5, 0.5], [0.5, 0.5]]
    lengths = F.tensor([2, 2])
    for reduce in ("max", "min"):
        (g,) = gradient(lambda x, r=reduce: F.segment_reduce(x, r, lengths=lengths), [nan, 1.0, -inf, -inf])
        assert g == [1, 0, 0.5, 0.5]
    (g,) = gradient(lambda x: F.segment_reduce(x, "prod", lengths=lengths), [nan, 2.0, 3.0, 4.0])
    assert g[0] == 2 and g[2:] == [4, 3]


def test_infinite_factors_of_outer_products_come_after_the_sums():
    ((a, b),) = gradient(
        lambda v: F.addr(
            F.zeros(2, 2, dtype=F.float64), v, F.tensor([1.0, -3.0], dtype=F.float64), alpha=inf
        ),
        [1.0, 1.0],
    )
    assert a == b == -inf
    whole = F.ones(2, dtype=F.int32)
    with pytest.raises(RuntimeError, match="must not be a floating point number"):
        F.addr(F.zeros(2, 2, dtype=F.int32), whole, whole, beta=0.5)
    with pytest.raises(RuntimeError, match="Boolean alpha"):
        F.addr(F.zeros(2, 2), F.ones(2), F.ones(2), alpha=True)


def test_what_is_short_enough_keeps_its_gradient():
    (g,) = gradient(lambda x: F.renorm(x, 2, 0, inf), [[1.0, 2.0], [3.0, 4.0]])
    assert g == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    "name",
    [
        "chebyshev_polynomial_t",
        "chebyshev_polynomial_u",
        "chebyshev_polynomial_v",
        "chebyshev_polynomial_w",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
    ],
)
def test_polynomials_of_large_orders_take_no_steps(name):
    """Beside the recurrence, and at an order at which it would take minutes."""
    f = getattr(F.special, name)
    x = F.tensor([0.3, 1e-3, 1.0000001, -0.9999, -1.00000001, 3.0, -1e-7], dtype=F.float64)
    f(x, 2.0**62), f(x.to(F.float32), 2.0**31)
    if name.startswith("hermite"):
        return
    at = [65533.0 + k for k in range(7)]
    values = np.array([f(x[:5], n).tolist() for n in at])
    if name.startswith(("laguerre", "legendre")):
        k = np.array(at)[:-2, None] + 1
        y = x[:5].numpy()
        a, b = (2 * k + 1 - y, k) if name.startswith("laguerre") else ((2 * k + 1) * y, k)
        left = a * values[1:-1] - b * values[:-2] - (k + 1) * values[2:]
        scale = k
    else:
        left = 2 * x[:5].numpy() * values[1:-1] - values[:-2] - values[2:]
        scale = 1
    assert (np.abs(left) <= 1e-8 * scale * np.abs(values).max(0)).all()


def test_zeta_and_incomplete_gamma_functions_at_infinity():
    z = F.special.zeta(F.tensor([inf, inf, nan]), F.tensor([-2.5, -inf, -1.0]))
    assert z.tolist() == [inf, inf, inf]
    assert F.special.gammainc(F.tensor([nan, inf]), F.tensor([inf, nan])).tolist() == [1, 0]
    huge = F.tensor([1.7e308], dtype=F.float64)
    assert F.special.gammainc(huge, F.tensor([0.1], dtype=F.float64)).item() == 0


@pytest.mark.parametrize("rows", [(), (2,)])
def test_causal_attention_takes_no_notice_of_keys_behind_the_query(rows):
    """A causal mask hides the keys behind a query, whatever they are: also NaN and infinities."""
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(*rows, 5, 4)).astype("float32") for _ in range(3)]

    def plain(q, k, v):
        """The result, and the gradients of the sum of its elements."""
        root, results, of_q = 2**-0.5, [], []
        of_k, of_v = F.zeros_like(k), F.zeros_like(v)
        for i in range(5):  # a query with the keys up to it
            one, keys, values = q[..., i : i + 1, :] * root, k[..., : i + 1, :] * root, v[..., : i + 1, :]
            scores = one @ keys.mT
            p = F.softmax(scores, -1).masked_fill(F.amax(scores, -1, True) == -inf, 0)
            of_p = F.ones_like(one) @ values.mT
            of_scores = p * (of_p - (p * of_p).sum(-1, keepdim=True))
            results.append(p @ values)
            of_q.append(of_scores @ keys * root)
            of_k[..., : i + 1, :] += of_scores.mT @ one * root
            of_v[..., : i + 1, :] += p.mT @ F.ones_like(one)
        return F.cat(results, -2), F.cat(of_q, -2), of_k, of_v

    for operand, special in ((0, nan), (0, inf), (0, -inf), (1, nan)):
        for place in (0, 2, 4):
            args = [F.tensor(x.copy()) for x in given]
            args[operand][..., place, 1] = special
            value, *of = plain(*args)
            for x in args:
                x.requires_grad_(True)
            got = fn.scaled_dot_product_attention(*args, is_causal=True)
            got.sum().backward()
            np.testing.assert_allclose(got.detach().numpy(), value.numpy(), rtol=1e-4, atol=1e-6)
            for x, y in zip((x.grad for x in args), of):
                # As in PyTorch, a row with a NaN score has NaN gradients for all keys.
                unknown = x.isnan()
                assert unknown[y.isnan()].all()
                np.testing.assert_allclose(x[~unknown].numpy(), y[~unknown].numpy(), rtol=1e-4, atol=1e-6)


def test_attention_without_keys_or_with_every_key_hidden_is_zero():
    q, k = F.ones(2, 3, 5, 4), F.ones(2, 3, 0, 4)
    assert not fn.scaled_dot_product_attention(q, k, k).any()
    hidden = F.zeros(5, 6, dtype=F.bool)
    assert not fn.scaled_dot_product_attention(q, F.ones(2, 3, 6, 4), F.ones(2, 3, 6, 4), hidden).any()
    endless = F.full((2, 3, 6, 4), -inf)
    assert not fn.scaled_dot_product_attention(q, endless, F.ones(2, 3, 6, 4)).any()


@pytest.mark.parametrize("shape, dim", [((5,), 0), ((4, 40), 1), ((40, 4), 0), ((3, 4), None)])
def test_the_variance_of_numbers_near_the_largest_is_finite_where_it_can_be(shape, dim):
    top = F.finfo(F.float32).max
    equal = F.full(shape, F.finfo(F.bfloat16).max).to(F.bfloat16)
    for x in (equal, -equal):
        assert not x.var(dim).any() and not x.std(dim).any()
    for apart in (F.full(shape, top), F.full(shape, F.finfo(F.bfloat16).max).to(F.bfloat16)):
        apart.view(-1)[::3] *= -1
        assert F.isinf(apart.var())
    assert F.isnan(F.tensor([inf, 1.0]).var())
    tiny = F.tensor([3e-39, 1e-39, 2e-39])  # subnormal
    np.testing.assert_allclose(F.var_mean(tiny)[1].item(), 2e-39, rtol=1e-5)


def test_the_numbers_of_windows_are_given_with_what_stands_before_them():
    """As PyTorch's overloads."""
    for call in (
        lambda: F.hamming_window(7, alpha=0.5),
        lambda: F.hamming_window(7, True, beta=0.5),
        lambda: F.kaiser_window(7, beta=5.0),
    ):
        with pytest.raises(TypeError):
            call()
    same(F.hamming_window(7, True).tolist(), F.hamming_window(7, True, 0.54).tolist())
    same(F.hamming_window(7, False, 0.5, 0.5).tolist(), F.hann_window(7, False).tolist())
    same(F.kaiser_window(7).tolist(), F.kaiser_window(7, True, beta=12.0).tolist())


@pytest.mark.parametrize("dtype", [F.float32, F.float64, F.complex64, F.complex128])
def test_the_gradient_of_sinc_keeps_its_digits_near_0(dtype):
    """Against the derivative's series, where PyTorch's difference of quotients keeps two digits or none."""
    at = np.array([0.0, 1e-30, 6e-8, 1e-3, -1e-3, 0.02])
    if dtype.is_complex:
        at = np.concatenate([at, 1j * at, (0.6 - 0.8j) * at])
    x = F.tensor(at, dtype=dtype, requires_grad=True)
    y = F.sinc(x)
    (y.real if dtype.is_complex else y).sum().backward()
    z = x.detach().resolve_conj().numpy().astype(complex)
    terms = (
        (-1) ** k * 2 * k * np.pi ** (2 * k) / math.factorial(2 * k + 1) * z ** (2 * k - 1)
        for k in range(1, 9)
    )
    want = sum(terms)
    got = x.grad.resolve_conj().numpy()
    tolerance = 1e-5 if dtype in (F.float32, F.complex64) else 1e-14
    assert (abs(got - want.conj()) <= tolerance * abs(want)).all()
    assert F.sinc(F.tensor([0.0, inf, nan, 1e-320])).isnan().tolist() == [False, True, True, False]


def test_a_zero_point_in_a_tensor_is_cut_to_an_integer():
    x, scale = F.tensor([-1.0, 0.3, 1.0]), F.tensor([0.25])
    for given, used in ((1.7, 1), (-1.7, -1)):
        got = F.fake_quantize_per_tensor_affine(x, scale, F.tensor([given]), -8, 7)
        assert got.tolist() == F.fake_quantize_per_tensor_affine(x, 0.25, used, -8, 7).tolist()
    for zero_point in (nan, inf, 1e10):
        with pytest.raises(
            RuntimeError, match="fake_quantize_per_tensor_affine: zero_point cannot be converted"
        ):
            F.fake_quantize_per_tensor_affine(x, scale, F.tensor([zero_point]), -8, 7)
    with pytest.raises(RuntimeError, match="scale cannot be converted"):
        F.fake_quantize_per_tensor_affine(x, F.tensor([1e300], dtype=F.float64), F.tensor([0]), -8, 7)


@pytest.mark.parametrize("dtype", [F.float16, F.bfloat16, F.float32])
def test_embedding_renorm_takes_bounds_that_the_dtype_does_not_hold(dtype):
    w = F.tensor([[3.0, 4.0], [6.0, 8.0]], dtype=dtype)
    assert F.embedding_renorm_(w.clone(), F.tensor([0, 1]), 1e300, 2.0).tolist() == w.tolist()
    assert F.embedding_renorm_(w.clone(), F.tensor([1]), 5.0, 2.0).tolist() == [[3, 4], [3, 4]]


def test_features_of_size_0_have_the_loss_of_equal_logits():
    loss = fn.linear_cross_entropy(F.zeros(2, 0), F.zeros(3, 0), F.tensor([0, 2]))
    assert loss.item() == pytest.approx(math.log(3))


def test_what_is_no_dimension_number_or_dtype_is_refused_as_by_pytorch():
    with pytest.raises(IndexError, match="median"):
        F.median(F.tensor(1.0), dim=1)
    with pytest.raises(IndexError, match="unique"):
        F.unique_consecutive(F.tensor(1.0), dim=0)
    for bounds in ((nan, 0.3), (0.1, nan), (0.1, inf)):
        with pytest.raises(RuntimeError, match="rrelu: bounds must be finite"):
            fn.rrelu(F.ones(2), *bounds)
    with pytest.raises(RuntimeError, match="cosine_similarity: eps must be non-negative"):
        fn.cosine_similarity(F.ones(2, 3), F.ones(2, 3), eps=nan)
    for dtype in (F.uint8, F.bool, F.float32):
        with pytest.raises(NotImplementedError, match="repeat_interleave"):
            F.ones(2).repeat_interleave(F.ones(2).to(dtype))
    with pytest.raises(RuntimeError, match="repeat_interleave: the repeats are more"):
        F.ones(2).repeat_interleave(F.tensor([2**62, 2**62]))


def test_gradients_of_singular_vectors_survive_matrices_whose_squares_underflow():
    """A vector does not change with the size of a matrix, so its gradient is inversely proportional to it."""
    from facula.func import hessian, jacrev

    seed = secrets.randbits(32)
    print(f"seed {seed}")
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((2, 3, 3)))[0]
    a = q @ np.diag([3.0, 2.0, 1.0]) @ r

    def vector(a):
        return F.linalg.svd(a, full_matrices=False)[0][:, 0]

    def both(a):
        u, s, vh = F.linalg.svd(a, full_matrices=False)
        return (u @ vh)[0, 1] * s[0]

    gradient, second = jacrev(vector)(F.tensor(a)), hessian(both)(F.tensor(a))
    sign = F.sign(vector(F.tensor(a)) @ vector(F.tensor(a, dtype=F.float32)).double())
    small = F.tensor(1e-21 * a, dtype=F.float32)
    F.testing.assert_close(jacrev(vector)(small).double() * 1e-21 * sign, gradient, rtol=1e-4, atol=1e-5)
    small = F.tensor(1e-19 * a, dtype=F.float32)
    F.testing.assert_close(hessian(both)(small).double() * 1e-19, second, rtol=1e-4, atol=1e-5)
