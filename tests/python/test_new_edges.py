"""Faults that the generated edges of newer operators found: expected are PyTorch's numbers, or exact ones."""

import math

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
    same(gradient(F.sinc, [1e-200, -1e-320, 0.0]), [[0, 0, 0]])
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
