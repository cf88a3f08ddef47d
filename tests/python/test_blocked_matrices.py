"""Real matrices of more than a few rows are factored and solved for in blocks, as near as by LAPACK."""

import numpy as np
import pytest

import facula as F
from facula import linalg

FLOATS = [F.float32, F.float64]
SIZES = (31, 32, 33, 48, 63, 100, 257)  # about the least number of rows, and no whole number of blocks


def normal(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def leaves(a, x, b, dtype):
    """The rest of a x = b, beside what rounding a, x and their product may leave."""
    a, x, b = (t.double().numpy() for t in (a, x, b))
    bound = F.finfo(dtype).eps * (np.abs(a) @ np.abs(x) + np.abs(b)).max()
    return np.abs(a @ x - b).max() / bound


def near(got, exact, dtype):
    got = got.double().numpy()
    assert np.abs(got - exact).max() <= 8 * got.shape[-1] ** 0.5 * F.finfo(dtype).eps * np.abs(exact).max()


def triangle(n, dtype, upper):
    a = normal((n, n), 2) / n**0.5 + 2 * np.eye(n)
    return F.tensor(np.triu(a) if upper else np.tril(a), dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_factors_solutions_and_inverses(dtype, n):
    a = F.tensor(normal((2, n, n)), dtype=dtype)
    for operand in (a, a.mT):
        lu, pivots = linalg.lu_factor(operand)
        p, lower, upper = F.lu_unpack(lu, pivots)
        assert lower.abs().max() <= 1
        near(p @ lower @ upper, operand.double().numpy(), dtype)
        for columns in (1, 3, 16, 37, 150):
            b = F.tensor(normal((2, n, columns), 1), dtype=dtype)
            assert leaves(operand, linalg.solve(operand, b), b, dtype) < n
            assert leaves(operand.mT, linalg.solve(operand, b.mT, left=False).mT, b, dtype) < n
        assert leaves(operand, linalg.inv(operand), F.eye(n, dtype=dtype).expand(2, n, n), dtype) < n
        sign, log = np.linalg.slogdet(operand.double().numpy())
        assert linalg.slogdet(operand)[0].tolist() == sign.tolist()
        assert np.abs(linalg.slogdet(operand)[1].double().numpy() - log).max() < n * 1e3 * F.finfo(dtype).eps


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_systems(dtype, n, upper):
    a = triangle(n, dtype, upper)
    garbage = a + F.tensor(np.where(a.numpy() == 0, np.nan, 0), dtype=dtype)  # the other triangle is not read
    for columns in (15, 16, 40, 129):
        b = F.tensor(normal((n, columns), 1), dtype=dtype)
        assert leaves(a, linalg.solve_triangular(garbage, b, upper=upper), b, dtype) < 4
        unit = a - F.diag(a.diagonal()) + F.eye(n, dtype=dtype)
        x = linalg.solve_triangular(garbage, b, upper=upper, unitriangular=True)
        assert leaves(unit, x, b, dtype) < 4
        x = F.cholesky_solve(b, garbage, upper=upper)
        product = a.mT @ a if upper else a @ a.mT
        assert leaves(product, x, b, dtype) < n
    y = F.cholesky_inverse(garbage, upper=upper)
    assert F.equal(y, y.mT)
    assert leaves(product, y, F.eye(n, dtype=dtype), dtype) < n


def test_a_pivot_is_the_first_of_the_largest():
    a = F.eye(40).flip(0) + F.triu(F.ones(40, 40).flip(0)).flip(0) * 0
    a[:, 0] = -3.0
    assert linalg.lu_factor(a)[1][0] == 1
    a[0, 0] = 1.0
    assert linalg.lu_factor(a)[1][0] == 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_matrices_without_an_inverse_are_told(dtype):
    a = F.tensor(normal((50, 50)), dtype=dtype)
    a[:, 20] = 0
    assert linalg.lu_factor_ex(a).info == 21
    assert linalg.det(a) == 0
    assert linalg.inv_ex(a).info == 21
    assert linalg.solve_ex(a, a).info == 21
    for f in (linalg.inv, lambda x: linalg.solve(x, x)):
        with pytest.raises(RuntimeError, match="singular"):
            f(F.stack([F.eye(50, dtype=dtype), a]))
    lower = F.tril(F.ones(50, 50, dtype=dtype))
    lower[30, 30] = 0
    x = linalg.solve_triangular(lower, F.ones(50, 20, dtype=dtype), upper=False)
    assert not x[:30, 1:].isnan().any() and not x[31:].isfinite().any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_made_of_a_matrix_that_is_not_finite_has_no_numbers(dtype, value):
    a = F.tensor(normal((40, 40)), dtype=dtype)
    a[7, 9] = value
    assert linalg.solve(a, F.ones(40, 20, dtype=dtype)).isnan().any()
    assert not linalg.det(a).isfinite()


@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1e20, 1e37])
def test_the_scale_of_a_matrix_does_not_matter(scale):
    a = F.tensor(normal((64, 64)) * scale, dtype=F.float32)
    p, lower, upper = linalg.lu(a)
    rest = (p.double() @ lower.double() @ upper.double() - a.double()).abs().max()
    assert rest <= 64 * max(F.finfo(F.float32).eps * scale, 1e-45)


def test_gradients_go_through_factors_in_blocks():
    a = F.tensor(normal((34, 34)) + 6 * np.eye(34), dtype=F.float64, requires_grad=True)
    b = F.tensor(normal((34, 18), 1), dtype=F.float64, requires_grad=True)
    direction = F.tensor(normal((34, 34), 2), dtype=F.float64)
    for f in (linalg.det, linalg.inv, lambda a: linalg.slogdet(a)[1], lambda a: linalg.solve(a, b)):
        (gradient,) = F.autograd.grad(f(a).square().sum(), [a])
        with F.no_grad():
            step = 1e-6
            difference = f(a + step * direction).square().sum() - f(a - step * direction).square().sum()
        assert (gradient * direction).sum() == pytest.approx(difference.item() / 2 / step, rel=1e-6)


def test_threads_change_no_bit():
    a = F.tensor(normal((300, 300)), dtype=F.float32)
    lower = triangle(300, F.float32, False)
    calls = [
        lambda: linalg.lu_factor(a)[0],
        lambda: linalg.solve(a, a.mT),
        lambda: linalg.inv(a),
        lambda: linalg.solve_triangular(lower, a, upper=False),
        lambda: F.cholesky_inverse(lower),
    ]
    threads = F.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            F.set_num_threads(count)
            results.append([f() for f in calls])
    finally:
        F.set_num_threads(threads)
    for other in results[1:]:
        assert all(F.equal(x, y) for x, y in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [64, 65, 130, 300])
def test_the_number_of_threads_changes_no_bit(dtype, n):
    a, b = F.tensor(normal((n, n)), dtype=dtype), F.tensor(normal((n, n + 3), 1), dtype=dtype)
    lower = a.tril() + n * F.eye(n, dtype=dtype)

    def results():
        lu, pivots = linalg.lu_factor(a)
        solved = [linalg.solve(a, b), linalg.solve_triangular(lower, b, upper=False)]
        solved += [*linalg.svd(b), linalg.svdvals(b), *linalg.eigh(a @ a.mT), linalg.eigvalsh(a @ a.mT)]
        solved += [
            linalg.lu_solve(lu, pivots, b),
            linalg.lu_solve(lu, pivots, b, adjoint=True),
            *linalg.qr(b),
        ]
        return [lu, pivots, *solved, linalg.inv(a), linalg.det(a), F.cholesky_inverse(lower)]

    threads = F.get_num_threads()
    try:
        given = []
        for count in (1, 2, 3, 2, 5):
            F.set_num_threads(count)
            given.append(results())
    finally:
        F.set_num_threads(threads)
    for others in given[1:]:
        assert all(F.equal(x, y) for x, y in zip(given[0], others))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [40, 200])
def test_what_is_singular_graded_or_not_finite(dtype, n):
    a = F.tensor(normal((n, n)) / n**0.5, dtype=dtype)
    singular = a.clone()
    singular[:, n // 2] = singular[:, 0]
    singular[:, n - 1] = 0
    assert linalg.det(singular) == 0
    with pytest.raises(RuntimeError, match="singular"):
        linalg.solve(singular, a)
    scales = F.tensor(10.0 ** np.linspace(-15, 15, n), dtype=dtype)
    for graded in (a * scales, a * scales[:, None], a * 1e-25, a * 1e25):
        p, lower, upper = F.lu_unpack(*linalg.lu_factor(graded))
        exact = graded.double().numpy()
        left = np.abs((p @ lower @ upper).double().numpy() - exact)
        bound = np.abs(lower.double().numpy()) @ np.abs(upper.double().numpy())
        assert (left <= 4 * n * F.finfo(dtype).eps * (p.double().numpy() @ bound)).all()
    for at, value in (((0, n - 1), np.inf), ((n - 1, 0), np.nan), ((n // 2, n - 1), -np.inf)):
        hurt = a.clone()
        hurt[at] = value
        assert not linalg.det(hurt).isfinite()
        assert np.isinf(value) or linalg.solve(hurt, a).isnan().any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(32, 32), (65, 65), (130, 70), (70, 130), (40, 300), (500, 33)])
def test_reflections_are_lapacks(dtype, shape):
    a = F.tensor(normal((2, *shape)), dtype=dtype)
    for operand in (a, F.tensor(normal((2, *shape[::-1])), dtype=dtype).mT):
        exact = operand.double().numpy()
        h, tau = F.geqrf(operand)
        for k in range(2):
            raw, factors = np.linalg.qr(exact[k], mode="raw")
            near(h[k], raw.T, dtype) if shape[0] != shape[1] else None  # the last of a square's are of little
            assert np.abs(tau[k].double().numpy() - factors)[:30].max() < 1e3 * F.finfo(dtype).eps
        for mode in ("reduced", "complete"):
            q, r = linalg.qr(operand, mode=mode)
            assert leaves(q, r, operand, dtype) < max(shape)
            assert leaves(q.mT, q, F.eye(q.shape[-1], dtype=dtype).expand(2, -1, -1), dtype) < max(shape)
            assert F.equal(r.triu(), r)


@pytest.mark.parametrize("dtype", FLOATS)
def test_reflections_of_zeros_and_extremes(dtype):
    n = 100
    a = F.tensor(normal((n, n)), dtype=dtype)
    cut = a.clone()
    cut[:, 3] = 0
    cut[:, 50:] = cut[:, :50]
    scales = F.tensor(10.0 ** np.linspace(-30, 7, n), dtype=dtype)
    assert F.equal(linalg.qr(a * 0)[0], F.eye(n, dtype=dtype))
    for x in (cut, a.triu(), a * scales, a * scales[:, None], a * 1e-38, a * 1e-20, a * 1e18, a * 1e36):
        q, r = linalg.qr(x)
        assert leaves(q, r, x, dtype) < n
        assert leaves(q.mT, q, F.eye(n, dtype=dtype), dtype) < n
    assert F.equal(F.geqrf(a.triu())[1], F.zeros(n, dtype=dtype))
    a[5, 70] = np.nan
    assert linalg.qr(a)[1].isnan().any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_factors_solve_the_transposed_system(dtype, n):
    a = F.tensor(normal((2, n, n)), dtype=dtype)
    lu, pivots = linalg.lu_factor(a)
    for columns in (1, 17, 70):
        b = F.tensor(normal((2, n, columns), 1), dtype=dtype)
        assert leaves(a, linalg.lu_solve(lu, pivots, b), b, dtype) < n
        assert leaves(a.mT, linalg.lu_solve(lu, pivots, b, adjoint=True), b, dtype) < n


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(64, 64), (100, 65), (65, 100), (130, 130), (257, 200)])
def test_singular_values_and_vectors(dtype, shape):
    m, n = shape
    a = F.tensor(normal(shape), dtype=dtype)
    scales = F.tensor(10.0 ** np.linspace(-18, 0, n), dtype=dtype)
    low = a[:, :3] @ F.tensor(normal((3, n), 1), dtype=dtype)
    same = F.eye(*shape, dtype=dtype)
    ones = F.ones(*shape, dtype=dtype)  # what is left of it becomes ever less
    for x in (a, a * scales, low, same, ones, a * 1e-36, a * 1e36, a.mT.contiguous().mT):
        exact = x.double().numpy()
        values = np.linalg.svd(exact, compute_uv=False)
        bound = max(shape) * F.finfo(dtype).eps * values[0]
        assert np.abs(linalg.svdvals(x).double().numpy() - values).max() <= bound
        for full in (False, True):
            u, s, vh = (t.double().numpy() for t in linalg.svd(x, full_matrices=full))
            k = min(shape)
            assert np.abs(s - values).max() <= bound
            assert np.abs((u[:, :k] * s) @ vh[:k] - exact).max() <= bound
            assert np.abs(u.T @ u - np.eye(u.shape[1])).max() <= max(shape) * F.finfo(dtype).eps
            assert np.abs(vh @ vh.T - np.eye(vh.shape[0])).max() <= max(shape) * F.finfo(dtype).eps


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [64, 65, 130, 257])
@pytest.mark.parametrize("triangle", "LU")
def test_eigenvalues_and_vectors(dtype, n, triangle):
    a = F.tensor(normal((n, n)), dtype=dtype)
    a = a + a.mT
    scales = F.tensor(10.0 ** np.linspace(-9, 0, n), dtype=dtype)
    low = a[:, :3] @ a[:, :3].mT
    for x in (a, scales * a * scales[:, None], low, F.eye(n, dtype=dtype), a * 1e-36, a * 1e36):
        exact = x.double().numpy()
        other = F.tensor(np.full((n, n), 1e30), dtype=dtype)  # what is not read
        given = x.tril() + other.triu(1) if triangle == "L" else x.triu() + other.tril(-1)
        values = np.linalg.eigvalsh(exact, UPLO=triangle)
        bound = n * F.finfo(dtype).eps * np.abs(values).max()
        w, v = (t.double().numpy() for t in linalg.eigh(given, UPLO=triangle))
        exact = (
            np.tril(exact) + np.tril(exact, -1).T if triangle == "L" else np.triu(exact) + np.triu(exact, 1).T
        )
        assert np.abs(w - values).max() <= bound
        assert np.abs(linalg.eigvalsh(given, UPLO=triangle).double().numpy() - values).max() <= bound
        assert np.abs(exact @ v - v * w).max() <= bound
        assert np.abs(v.T @ v - np.eye(n)).max() <= n * F.finfo(dtype).eps


def symmetric(values, dtype):
    """A matrix of these eigenvalues with random vectors, rounded."""
    q = np.linalg.qr(normal((len(values), len(values)), 3))[0]
    a = (q * values) @ q.T
    return F.tensor((a + a.T) / 2, dtype=dtype)


def odd_symmetric_matrices(n, dtype):
    tiny = F.finfo(dtype).eps
    i = np.arange(n)
    glued = np.diag(np.abs(i % 21 - 10.0))
    for k in range(n - 1):
        glued[k, k + 1] = glued[k + 1, k] = tiny**0.5 if k % 21 == 20 else 1
    blocks = np.kron(np.eye(n // 30 + 1), np.ones((30, 30)))[:n, :n] * 10.0 ** -(i // 30 * 3.0)
    yield from (F.tensor(x, dtype=dtype) for x in (glued, np.minimum(blocks, blocks.T), np.diag(i % 3 - 1.0)))
    for values in (
        np.repeat([1.0, 2.0], [n // 2, n - n // 2]),
        np.where(i < n - 2, 1, 5.0),
        1 + i * tiny,
        10.0 ** -(i / 4),
        np.where(i == 0, 1, tiny * i),
        (i % 7) * (1 + tiny**0.5 * i),
        -np.ones(n),
    ):
        yield symmetric(values, dtype)
    yield F.ones(n, n, dtype=dtype)
    yield F.zeros(n, n, dtype=dtype)
    yield F.tensor(np.eye(n)[::-1].copy(), dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [64, 150, 301])
def test_repeated_clustered_and_graded_eigenvalues(dtype, n):
    for x in odd_symmetric_matrices(n, dtype):
        exact = x.double().numpy()
        values = np.linalg.eigvalsh(exact)
        bound = n * F.finfo(dtype).eps * np.abs(values).max()
        for triangle in "LU":
            w, v = (t.double().numpy() for t in linalg.eigh(x, UPLO=triangle))
            assert (np.diff(w) >= 0).all()
            assert np.abs(w - values).max() <= bound
            assert np.abs(linalg.eigvalsh(x, UPLO=triangle).double().numpy() - values).max() <= bound
            assert np.abs(exact @ v - v * w).max() <= bound
            assert np.abs(v.T @ v - np.eye(n)).max() <= n * F.finfo(dtype).eps


def test_gradients_go_through_eigenvalues_and_vectors_of_large_matrices():
    a = normal((70, 70)) / 8
    a = F.tensor(a + a.T + np.diag(np.arange(70.0)), dtype=F.float64, requires_grad=True)
    direction = normal((70, 70), 2)
    direction = F.tensor(direction + direction.T, dtype=F.float64)

    def f(x):
        w, v = linalg.eigh(x)
        return (w * w).sum() + (v[0] ** 2 * w.sin()).sum() + linalg.eigvalsh(x).exp().log().sum()

    (gradient,) = F.autograd.grad(f(a), [a])
    step = 1e-6
    with F.no_grad():
        difference = f(a + step * direction) - f(a - step * direction)
    assert (gradient * direction).sum() == pytest.approx(difference.item() / 2 / step, rel=1e-6)
