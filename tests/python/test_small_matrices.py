"""Batches of small matrices: as near as LAPACK's, with the same bits wherever they lie, beside whatever."""

import numpy as np
import pytest

import facula as F
from facula import linalg

FLOATS = [F.float32, F.float64]
SIZES = range(1, 9)
COUNTS = (1, 5, 16, 35)  # fewer, as many and more than lanes, which no register divides


def normal(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def near(got, exact, dtype, condition=1.0):
    scale = np.abs(exact).max(initial=1e-300)
    assert np.abs(got.double().numpy() - exact).max(initial=0) <= 30 * condition * F.finfo(dtype).eps * scale


def symmetric(x):
    return x + np.swapaxes(x, -1, -2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_solutions_and_factors_are_numpys(dtype, n):
    for count in COUNTS:
        a = F.tensor(normal((count, n, n)), dtype=dtype)
        b = F.tensor(normal((count, n, 11), 1), dtype=dtype)
        exact_a, exact_b = a.double().numpy(), b.double().numpy()
        condition = np.linalg.cond(exact_a).max()
        near(linalg.solve(a, b), np.linalg.solve(exact_a, exact_b), dtype, condition)
        near(linalg.inv(a), np.linalg.inv(exact_a), dtype, condition)
        near(linalg.det(a), np.linalg.det(exact_a), dtype, condition)
        sign, log = np.linalg.slogdet(exact_a)
        assert linalg.slogdet(a)[0].tolist() == sign.tolist()
        near(linalg.slogdet(a)[1], log, dtype, condition)
        lu, pivots = linalg.lu_factor(a)
        p, lower, upper = F.lu_unpack(lu, pivots)
        near(p @ lower @ upper, exact_a, dtype)
        assert lower.abs().max() <= 1
        near(linalg.lu_solve(lu, pivots, b), np.linalg.solve(exact_a, exact_b), dtype, condition)
        turned = np.linalg.solve(exact_a.swapaxes(1, 2), exact_b)
        near(linalg.lu_solve(lu, pivots, b, adjoint=True), turned, dtype, condition)
        definite = a @ a.mT + n * F.eye(n, dtype=dtype)
        lower = linalg.cholesky(definite)
        near(lower, np.linalg.cholesky(definite.double().numpy()), dtype, n)
        near(linalg.cholesky(definite.mT, upper=True), lower.mT.double().numpy(), dtype, n)
        exact = lower.double().numpy()
        near(
            linalg.solve_triangular(lower, b, upper=False), np.linalg.solve(exact, exact_b), dtype, condition
        )
        turned = np.linalg.solve(exact.swapaxes(1, 2), exact_b)
        near(linalg.solve_triangular(lower.mT, b, upper=True), turned, dtype, condition)
        inverse = np.linalg.inv(exact)
        inverse, junk = inverse.swapaxes(1, 2) @ inverse, F.triu(F.full_like(lower, F.nan), 1)
        near(F.cholesky_inverse(lower + junk), inverse, dtype, condition)
        near(F.cholesky_inverse((lower + junk).mT, upper=True), inverse, dtype, condition)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_reflections_are_lapacks(dtype, n):
    for m in (1, 3, 8):
        a = F.tensor(normal((21, m, n)), dtype=dtype)
        for mode in ("reduced", "complete"):
            q, r = linalg.qr(a, mode)
            exact_q, exact_r = np.linalg.qr(a.double().numpy(), mode)
            near(q @ r, a.double().numpy(), dtype)
            near(q.mT @ q, np.broadcast_to(np.eye(q.shape[-1]), [21, q.shape[-1], q.shape[-1]]), dtype)
            condition = np.linalg.cond(a.double().numpy()[..., : min(m, n)]).max()
            near(r, exact_r, dtype, condition)  # of the same signs
            near(q, exact_q, dtype, condition)


def kinds(n, dtype):
    """Batches that are hard in some way, in float64."""
    x, finfo = normal((19, n, n), n), F.finfo(dtype)
    q = np.linalg.qr(x)[0]
    yield x
    yield x * (finfo.max / 64)
    yield x * finfo.tiny * 100
    yield x * finfo.tiny / 16  # subnormal
    yield x[..., :1] @ x[:, :1]  # of rank 1
    yield x * 0
    yield x * 0 + 1
    yield np.round(x)
    yield x * (normal(x.shape, 1) > 0.5)
    yield x * np.eye(n)
    yield q
    yield (q * np.where(np.arange(n) < n // 2, 1, 2)) @ q.swapaxes(1, 2)  # two values
    yield x * np.logspace(0, -12, n)
    yield x * np.logspace(0, -30, n)[:, None] * np.logspace(0, -30, n)
    yield x + 1e-3 * finfo.eps * np.eye(n)


def check_vectors(vectors, dtype):
    products = vectors.mT @ vectors
    near(products, np.broadcast_to(np.eye(vectors.shape[-1]), products.shape), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_singular_and_eigenvalues_of_hard_matrices(dtype, n):
    for hard in kinds(n, dtype):
        a = F.tensor(hard, dtype=dtype)
        exact = a.double().numpy()
        size = np.maximum(np.abs(exact).max((1, 2), keepdims=True), np.finfo("float64").tiny)
        # A subnormal number is rounded to a multiple of the least one.
        scaled = {"atol": 100 * F.finfo(dtype).eps, "rtol": 0}
        scaled["atol"] += 4 * float(F.finfo(dtype).tiny * F.finfo(dtype).eps) / size.min()
        u, s, vh = linalg.svd(a)
        back = (u.double() * s.double().unsqueeze(-2)) @ vh.double()
        assert np.allclose(back.numpy() / size, exact / size, **scaled)
        check_vectors(u, dtype)
        check_vectors(vh, dtype)
        assert (s[..., 1:] <= s[..., :-1]).all() and (s >= 0).all()
        values = np.linalg.svd(exact)[1]
        assert np.allclose(s.double().numpy() / size[..., 0], values / size[..., 0], **scaled)
        assert np.allclose(linalg.svdvals(a).double().numpy() / size[..., 0], values / size[..., 0], **scaled)
        for uplo, read in (("L", np.tril(exact)), ("U", np.triu(exact).swapaxes(1, 2))):
            whole = read + np.tril(read, -1).swapaxes(1, 2)
            w, z = linalg.eigh(a, uplo)
            back = (z.double() * w.double().unsqueeze(-2)) @ z.double().mT
            assert np.allclose(back.numpy() / size, whole / size, **scaled)
            check_vectors(z, dtype)
            assert (w[..., 1:] >= w[..., :-1]).all()
            values = np.linalg.eigvalsh(whole)
            assert np.allclose(w.double().numpy() / size[..., 0], values / size[..., 0], **scaled)
            assert np.allclose(
                linalg.eigvalsh(a, uplo).double().numpy() / size[..., 0], values / size[..., 0], **scaled
            )


def test_signs_of_vectors_are_pytorchs():
    # Of the first rows of eigh's vectors of both triangles and of svd's U, for three matrices each.
    recorded = {
        3: ("--+++++--", "++--+++++", "+-+--+-+-"),
        4: ("-+-+++---+++", "-++-++-+-+++", "---+-+-+--++"),
        6: ("++++---++++----++-", "-+------+-+-+---+-", "++-+----+--+-++--+"),
    }
    for n, answers in recorded.items():
        k = np.arange(3.0 * n * n)
        a = F.tensor(np.round(np.sin(k * k + k) * 8).reshape(3, n, n) / 4)
        vectors = (linalg.eigh(a + a.mT)[1], linalg.eigh(a + a.mT, "U")[1], linalg.svd(a)[0])
        for x, answer in zip(vectors, answers, strict=True):
            assert "".join("+-"[v < 0] for v in x[:, 0].flatten().tolist()) == answer
    assert [x.item() for x in linalg.svd(F.tensor([[-2.0]]))] == [-1, 2, 1]


def results(a, b, s):
    """Results, with a part for each matrix, for matrices a, right-hand sides b and definite matrices s."""
    lu, pivots, info = linalg.lu_factor_ex(a)
    found = [lu, pivots, info, *linalg.solve_ex(a, b), *linalg.inv_ex(a), linalg.det(a), *linalg.slogdet(a)]
    found += [*linalg.cholesky_ex(s), linalg.lu_solve(lu, pivots, b), *linalg.qr(a), *F.geqrf(a)]
    lower = linalg.cholesky_ex(s)[0]
    found += [
        linalg.solve_triangular(a, b, upper=True),
        F.cholesky_solve(b, lower),
        F.cholesky_inverse(lower),
    ]
    found += [linalg.lu_solve(lu, pivots, b[..., :1]), *linalg.ldl_factor_ex(a + a.mT)]
    return found


def bits(x):
    return x.contiguous().view(F.uint8).tolist() if x.dim() else x.reshape(1).view(F.uint8).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [2, 4, 7])
def test_a_matrix_has_the_same_bits_wherever_it_lies(dtype, n):
    a, b = (F.tensor(normal(shape), dtype=dtype) for shape in ((37, n, n), (37, n, 3)))
    a[5] = float("nan")
    a[11] = 0
    a[12] *= 1e30
    a[30, 0, 0] = float("inf")
    s = a @ a.mT + n * F.eye(n, dtype=dtype)
    whole = results(a, b, s)
    sound = [k for k in range(37) if k not in (5, 30)]
    decompositions = [*linalg.svd(a[sound]), *linalg.eigh(a[sound]), linalg.svdvals(a[sound])]
    threads = F.get_num_threads()
    try:
        for some in (slice(0, 1), slice(3, 14), slice(11, 37), slice(36, 37)):
            F.set_num_threads(3)
            for x, y in zip(whole, results(a[some], b[some], s[some]), strict=True):
                assert bits(x[some]) == bits(y)
            part = a[sound][some]
            alone = [*linalg.svd(part), *linalg.eigh(part), linalg.svdvals(part)]
            for x, y in zip(decompositions, alone, strict=True):
                assert bits(x[some]) == bits(y)
        single = results(a[4], b[4], s[4])
        for x, y in zip(whole, single, strict=True):
            assert bits(x[4]) == bits(y)
    finally:
        F.set_num_threads(threads)


def test_failures_name_the_first_matrix():
    a = F.eye(4).repeat(40, 1, 1)
    a[23, 2, 2] = 0
    a[31] = 0
    for f in (linalg.inv, lambda x: linalg.solve(x, x), lambda x: linalg.inv_ex(x, check_errors=True)):
        with pytest.raises(linalg.LinAlgError, match="Batch element 23"):
            f(a)
    with pytest.raises(RuntimeError, match=r"Batch element 23\): U\[3,3\] is zero"):
        linalg.lu_factor(a)
    with pytest.raises(linalg.LinAlgError, match=r"Batch element 23.*order 3"):
        linalg.cholesky(a)
    info = [3 if k == 23 else k == 31 for k in range(40)]
    assert linalg.inv_ex(a).info.tolist() == info
    assert linalg.cholesky_ex(a).info.tolist() == info
    assert linalg.lu_factor_ex(a).info.tolist() == info
    assert linalg.det(a).tolist() == [k not in (23, 31) for k in range(40)]
    a[7, 3, 1] = float("nan")
    for f in (linalg.svd, linalg.svdvals, linalg.eigh, linalg.eigvalsh, linalg.cholesky):
        with pytest.raises(linalg.LinAlgError, match="Batch element 7"):
            f(a)
    assert linalg.det(a).isnan().tolist() == [k == 7 for k in range(40)]


def test_any_layout_and_destination():
    a = F.tensor(normal((6, 20, 4, 4)))
    b = F.tensor(normal((6, 20, 4, 2), 1))
    x = linalg.solve(a, b)
    assert (x == linalg.solve(a.mT.contiguous().mT, b.transpose(0, 1).contiguous().transpose(0, 1))).all()
    one = linalg.solve(a[:1, :1].expand(6, 20, 4, 4), b[0, 0].expand(6, 20, 4, 2))
    assert (one == x[0, 0]).all()
    padded = F.zeros(6, 20, 5, 9, dtype=F.float64)
    padded[..., :4, ::2][..., :4] = a
    assert (linalg.inv(padded[..., :4, ::2][..., :4]) == linalg.inv(a)).all()
    out = b.clone()
    linalg.solve(a, out, out=out)
    assert (out == x).all()
    inverse, again = linalg.inv(a), a.clone()
    linalg.inv(again, out=again)
    assert (again == inverse).all()
    out = F.empty(0, dtype=F.float64), F.empty(0, dtype=F.float64)
    linalg.eigh(a, out=out)
    assert all((o == r).all() for o, r in zip(out, linalg.eigh(a), strict=True))
    for n in (0, 1, 4):
        none = F.empty(0, n, n)
        assert linalg.solve(none, none).shape == none.shape and linalg.svd(none).U.shape == none.shape


@pytest.mark.parametrize("dtype", [*FLOATS, F.complex64, F.complex128])
def test_few_elements_of_each_matrix(dtype):
    """Right-hand sides, pivots and factors of less than a vector, and matrices that lie in columns."""
    for n in SIZES:
        for count in COUNTS:
            x, y = normal((count, n, n)) + 4 * np.eye(n), normal((count, n, 8), 1)
            if dtype.is_complex:
                x, y = x + 1j * normal(x.shape, 2), y + 1j * normal(y.shape, 3)
            a, b = F.tensor(x, dtype=dtype), F.tensor(y, dtype=dtype)
            wide = F.complex128 if dtype.is_complex else F.float64
            exact = np.linalg.solve(a.to(wide).numpy(), b.to(wide).numpy())
            lu, pivots = linalg.lu_factor(a)
            for columns in (1, 2, 3, 4, 8):
                some = b[..., :columns].contiguous()
                sides = [
                    linalg.solve(a, some),
                    linalg.lu_solve(lu, pivots, some),
                    linalg.lu_solve(lu.mT.contiguous().mT, pivots, some),
                    linalg.solve(a.mT, some.mT, left=False).mT,
                ]
                for found in sides:
                    np.testing.assert_allclose(
                        found.to(wide).numpy(),
                        exact[..., :columns],
                        rtol=0,
                        atol=1e4 * F.finfo(dtype).eps * np.abs(exact).max(),
                    )


def test_gradients_of_batches():
    a = F.tensor(normal((3, 4, 4)) + 3 * np.eye(4), requires_grad=True)
    b = F.tensor(normal((3, 4, 2), 1), requires_grad=True)
    check = F.autograd.gradcheck
    assert check(linalg.solve, (a, b))
    assert check(lambda x: (linalg.inv(x), linalg.det(x), linalg.slogdet(x)[1]), (a,))
    assert check(lambda x: linalg.cholesky(x @ x.mT), (a,))
    assert check(lambda x: linalg.qr(x), (a,))
    assert check(lambda x: linalg.lu_factor(x)[0], (a,))
    assert check(lambda x: (linalg.eigh(x + x.mT)[0], linalg.eigh(x + x.mT)[1] ** 2), (a,))
    assert check(lambda x: (linalg.svd(x)[1], linalg.svd(x)[0] ** 2), (a,))
    assert F.autograd.gradgradcheck(linalg.det, (a,))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_reflections_of_either_side_multiply_by_their_product(dtype, n):
    for m in range(n, 9):
        a, tau = F.geqrf(F.tensor(normal((21, m, n)), dtype=dtype))
        padded = F.cat([a, F.zeros(21, m, m - n, dtype=dtype)], -1)
        q = linalg.householder_product(padded, tau).double().numpy()
        for count in (1, 5, 8, 9):
            left, right = normal((21, m, count), 1), normal((21, count, m), 2)
            for transposed, factor in ((False, q), (True, q.swapaxes(1, 2))):
                x, y = (F.tensor(b, dtype=dtype) for b in (left, right))
                near(F.ormqr(a, tau, x, transpose=transposed), factor @ x.double().numpy(), dtype)
                right_side = F.ormqr(a, tau, y, left=False, transpose=transposed)
                near(right_side, y.double().numpy() @ factor, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("m", SIZES)
def test_singular_vectors_of_oblong_matrices(dtype, m):
    for n in SIZES:
        x = normal((19, m, n), n)
        for hard in (
            x,
            x[..., :1] @ x[:, :1],
            x * 0,
            np.round(x),
            x * np.logspace(0, -9, n),
            np.eye(m, n) + 0 * x,
        ):
            a = F.tensor(hard, dtype=dtype)
            exact, k = a.double().numpy(), min(m, n)
            for full in (True, False):
                u, s, vh = linalg.svd(a, full_matrices=full)
                assert u.shape == (19, m, m if full else k) and vh.shape == (19, n if full else k, n)
                check_vectors(u, dtype)
                check_vectors(vh.mT, dtype)
                back = (u[..., :k].double() * s.double().unsqueeze(-2)) @ vh[:, :k].double()
                near(back, exact, dtype, 4)  # LAPACK's tolerance, too, is some roundings
                near(s, np.linalg.svd(exact)[1], dtype)
            near(linalg.svdvals(a), np.linalg.svd(exact)[1], dtype)


def test_signs_of_vectors_of_oblong_matrices_are_pytorchs():
    recorded = {  # of the first row of U and the first column of V^T, for three matrices each
        (3, 2): "++-+-+-++-+-",
        (2, 3): "+-++++---+--",
        (4, 3): "++--++++--+++--+--",
        (6, 4): "+--++++---++---+-+---+++",
        (7, 5): "-+-++--++-+---+---+-+---++++--",
        (5, 8): "+-++-+-++++-++--++++-+++++++++",
        (8, 3): "-+++++--+-----+--+",
        (3, 8): "+--+--++-------++-",
        (4, 6): "+--++---+-++--+----++-++",
    }
    for (m, n), answer in recorded.items():
        k = np.arange(3.0 * m * n)
        a = F.tensor(np.round(np.sin(k * k + k) * 8).reshape(3, m, n) / 4, dtype=F.float32)
        u, _, vh = linalg.svd(a, full_matrices=False)
        edges = [*u[:, 0].flatten().tolist(), *vh[:, :, 0].flatten().tolist()]
        assert "".join("+-"[v < 0] for v in edges) == answer


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("driver", ["gelsy", "gels", "gelsd", "gelss"])
def test_least_squares_of_any_shape_and_rank(dtype, driver):
    for m in SIZES:
        for n in SIZES:
            a = normal((21, m, n), m * n)
            if driver != "gels":
                a[3] = np.outer(a[3, :, 0], a[3, 0])
                a[7] = 0
            a, b = F.tensor(a, dtype=dtype), F.tensor(normal((21, m, 9), 1), dtype=dtype)
            exact, right = a.double().numpy(), b.double().numpy()
            found = linalg.lstsq(a, b, driver=driver)
            values = np.linalg.svd(exact)[1]
            limit = max(m, n) * F.finfo(dtype).eps * values.max(1, keepdims=True)
            full = values[:, -1] > 100 * limit[:, 0]
            for k in range(21):
                solution = np.linalg.pinv(exact[k], rcond=max(m, n) * F.finfo(dtype).eps) @ right[k]
                condition = values[k, 0] / values[k, -1] if full[k] else 1
                if full[k] or k in (3, 7):
                    near(found.solution[k], solution, dtype, condition**2)
            if driver != "gels":
                assert found.rank[full].tolist() == [min(m, n)] * int(full.sum())
                assert found.rank[3] == 1 and found.rank[7] == 0
            if driver in ("gelsd", "gelss"):
                near(found.singular_values, values, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", SIZES)
def test_eigenvalues_and_vectors_of_hard_matrices(dtype, n):
    for k, hard in enumerate(kinds(n, dtype)):
        skew = (hard - hard.swapaxes(1, 2), np.triu(hard), np.roll(np.eye(n), 1, 0) + 0 * hard)
        for x in (hard, *skew):
            a = F.tensor(x, dtype=dtype)
            exact = a.double().numpy()
            size = np.abs(exact).max((1, 2))
            if not (size.max() * n < float(F.finfo(dtype).max)) or (
                0 < size[size > 0].min(initial=1) < 1e-30
            ):
                continue
            values, vectors = linalg.eig(a)
            w, v = (t.to(F.complex128).numpy() for t in (values, vectors))
            rest = np.abs(exact @ v - v * w[:, None]).max((1, 2))
            graded = k >= 12  # balanced, which may cost digits beside the largest element
            if not graded:
                assert (rest <= 100 * n * F.finfo(dtype).eps * size).all()
            assert np.allclose(np.linalg.norm(v, axis=1), 1, rtol=0, atol=20 * F.finfo(dtype).eps)
            # Conjugate pairs, the positive one first, of which the largest element is real.
            pairs = w.imag > 0
            assert (np.conj(w[:, :-1])[pairs[:, :-1]] == w[:, 1:][pairs[:, :-1]]).all()
            sizes = np.abs(v)
            largest = sizes >= sizes.max(1, keepdims=True) * (1 - 1e-6)
            parts = np.where(largest, np.abs(v.imag), np.inf).min(1)
            assert (parts <= 100 * F.finfo(dtype).eps).all()
            alone = linalg.eigvals(a).to(F.complex128).numpy()
            trace = np.trace(exact, axis1=1, axis2=2)
            assert (np.abs(alone.sum(1) - trace) <= 100 * n * F.finfo(dtype).eps * size * n).all()


@pytest.mark.parametrize("dtype", [*FLOATS, F.complex64, F.complex128])
@pytest.mark.parametrize("n", SIZES)
def test_factors_with_pivots_solve_symmetric_and_hermitian_systems(dtype, n):
    x, y = normal((23, n, n)), normal((23, n, 5), 1)
    if dtype.is_complex:
        x, y = x + 1j * normal(x.shape, 2), y + 1j * normal(y.shape, 3)
    x[5:] *= 1 - np.eye(n) * (n > 1)  # so that blocks of two rows are wanted
    x[10:15] = np.round(x[10:15]) + 3 * np.eye(n)
    b = F.tensor(y, dtype=dtype)
    for hermitian in (False, True):
        a = F.tensor(x + np.swapaxes(x.conj() if hermitian else x, 1, 2), dtype=dtype)
        junk = F.triu(F.full_like(a, 7), 1) + F.tril(a)  # only the lower triangle is read
        ld, pivots, info = linalg.ldl_factor_ex(junk, hermitian=hermitian)
        assert (F.triu(ld, 1) == 0).all()
        exact = a.to(F.complex128 if dtype.is_complex else F.float64).numpy()
        sound = [k for k in range(23) if info[k] == 0 and np.linalg.cond(exact[k]) < 1e3]
        assert len(sound) > 10
        found = linalg.ldl_solve(ld, pivots, b, hermitian=hermitian)
        for k in sound:
            solution = np.linalg.solve(
                exact[k], b[k].to(F.complex128 if dtype.is_complex else F.float64).numpy()
            )
            got = found[k].to(F.complex128 if dtype.is_complex else F.float64).numpy()
            assert np.abs(got - solution).max() <= 1e5 * F.finfo(dtype).eps * np.abs(solution).max()
        if n > 2:
            assert (pivots < 0).any()
    with pytest.raises(RuntimeError, match="blocks of two rows"):
        linalg.ldl_solve(F.eye(3), F.tensor([1, 2, -3], dtype=F.int32), F.ones(3, 1))


@pytest.mark.parametrize("dtype", [*FLOATS, F.complex64, F.complex128])
def test_products_of_small_matrices_however_they_lie(dtype):
    for m in (1, 2, 3, 4, 5, 8):
        for n in (1, 3, 4, 7, 8):
            for k in (1, 2, 4, 5, 8):
                x, y = normal((2, 149, m, k)), normal((2, 149, k, n), 1)
                if dtype.is_complex:
                    x, y = x + 1j * normal(x.shape, 2), y + 1j * normal(y.shape, 3)
                a, b = F.tensor(x, dtype=dtype), F.tensor(y, dtype=dtype)
                wide = F.complex128 if dtype.is_complex else F.float64
                lying = [
                    (a, b),
                    (a.mT.contiguous().mT, b),
                    (a, b.mT.contiguous().mT),
                    (a.mT.contiguous().mT, b.transpose(0, 1).contiguous().transpose(0, 1)),
                    (a[:1], b),
                    (a, b[:, :1].expand(2, 149, k, n)),
                ]
                for left, right in lying:
                    exact = left.to(wide).numpy() @ right.to(wide).numpy()
                    got = (left @ right).to(wide).numpy()
                    assert np.abs(got - exact).max() <= 30 * F.finfo(dtype).eps * np.abs(exact).max()
                start = F.ones(298, m, n, dtype=dtype)
                left, right = a.reshape(298, m, k), b.reshape(298, k, n)
                exact = 3 * start.to(wide).numpy() + 2 * (left.to(wide).numpy() @ right.to(wide).numpy())
                got = F.baddbmm(start, left, right, beta=3, alpha=2).to(wide).numpy()
                assert np.abs(got - exact).max() <= 30 * F.finfo(dtype).eps * np.abs(exact).max()


@pytest.mark.parametrize("dtype", [*FLOATS, F.complex64, F.complex128])
def test_products_of_many_rows_with_a_few_columns(dtype):
    wide = F.complex128 if dtype.is_complex else F.float64
    for m in (1024, 1027, 4102):
        for k, n in ((4, 4), (3, 3), (1, 2), (8, 8), (5, 7), (2, 6)):
            x, y = normal((m, 2 * k)), normal((k, n), 1)
            if dtype.is_complex:
                x, y = x + 1j * normal(x.shape, 2), y + 1j * normal(y.shape, 3)
            a, b = F.tensor(x, dtype=dtype), F.tensor(y, dtype=dtype)
            for left in (a[:, :k], a[:, ::2], a[:, :k].mT.contiguous().mT, a[:1, :k].expand(m, k)):
                for right in (b, b.mT.contiguous().mT):
                    exact = left.to(wide).numpy() @ right.to(wide).numpy()
                    near_all = 30 * F.finfo(dtype).eps * np.abs(exact).max()
                    assert np.abs((left @ right).to(wide).numpy() - exact).max() <= near_all
                    start = F.ones(m, n, dtype=dtype)
                    got = F.addmm(start, left, right, beta=3, alpha=2).to(wide).numpy()
                    assert np.abs(got - 3 - 2 * exact).max() <= 3 * near_all
    x = F.ones(2000, 4)
    x[3, 1], x[5, 2], x[7, 0] = float("nan"), float("inf"), -float("inf")
    got = (x @ F.ones(4, 3)).numpy()
    assert np.isnan(got[3]).all() and (got[5] == np.inf).all() and (got[7] == -np.inf).all()
    assert (np.delete(got, [3, 5, 7], 0) == 4).all()


@pytest.mark.parametrize("dtype", [F.complex64, F.complex128])
@pytest.mark.parametrize("n", SIZES)
def test_complex_eigenvalues_and_vectors_of_hard_matrices(dtype, n):
    real = F.float32 if dtype == F.complex64 else F.float64
    eps, largest = F.finfo(real).eps, float(F.finfo(real).max)
    for k, (re, im) in enumerate(zip(kinds(n, real), kinds(n, real), strict=True)):
        both = re + 1j * im[::-1]
        rings = np.roll(np.eye(n), 1, 0) * 1j + 0 * both
        for x in (both, re + 0j, 1j * re, both - both.conj().swapaxes(1, 2), np.triu(both), rings):
            a = F.tensor(x, dtype=dtype)
            exact = a.to(F.complex128).numpy()
            size = np.abs(exact).max((1, 2))
            if not (size.max() * n < largest / 8) or (0 < size[size > 0].min(initial=1) < 1e-30):
                continue
            values, vectors = linalg.eig(a)
            w, v = (t.to(F.complex128).numpy() for t in (values, vectors))
            rest = np.abs(exact @ v - v * w[:, None]).max((1, 2))
            if k < 12:  # others are balanced, which may cost digits beside the largest element
                assert (rest <= 100 * n * eps * size).all()
            assert np.allclose(np.linalg.norm(v, axis=1), 1, rtol=0, atol=20 * eps)
            sizes = np.abs(v)
            most = sizes >= sizes.max(1, keepdims=True) * (1 - 1e-6)
            assert (np.where(most, np.abs(v.imag), np.inf).min(1) <= 100 * eps).all()
            alone = linalg.eigvals(a).to(F.complex128).numpy()
            trace = np.trace(exact, axis1=1, axis2=2)
            assert (np.abs(alone.sum(1) - trace) <= 100 * n * n * eps * size).all()


def test_complex_eigenvalues_come_in_lapacks_order():
    for n in SIZES:
        x = normal((200, n, n), 5) + 1j * normal((200, n, n), 6)
        values, vectors = (t.numpy() for t in linalg.eig(F.tensor(x)))
        w, v = np.linalg.eig(x)
        near = np.isclose(values, w, rtol=1e-9, atol=1e-9).all(1)
        assert near.mean() >= 0.97
        at = np.abs(v).argmax(1, keepdims=True)  # of which PyTorch makes the element real
        phases = np.take_along_axis(v, at, 1)
        turned = v * (np.abs(phases) / phases)
        assert np.allclose(vectors[near], turned[near], rtol=0, atol=1e-8)
        alone = linalg.eigvals(F.tensor(x)).numpy()
        assert np.allclose(np.sort_complex(alone), np.sort_complex(w), rtol=0, atol=1e-8)
    with pytest.raises(RuntimeError, match="infs or NaNs"):
        linalg.eig(F.full((2, 3, 3), float("nan"), dtype=F.complex64))
    assert linalg.eig(F.ones(0, 3, 3, dtype=F.complex64))[0].shape == (0, 3)


def test_vector_products_of_rows():
    for dtype in (F.float32, F.float64, F.int64, F.bfloat16, F.complex64):
        for count in (0, 1, 5, 16, 35, 101):
            x, y = normal((count, 3)) * 9, normal((count, 3), 1) * 9
            if dtype.is_complex:
                x = x + 1j * y[:, ::-1]
            a, b = F.tensor(x).to(dtype), F.tensor(y).to(dtype)
            wide = F.complex128 if dtype.is_complex else F.float64
            exact = np.cross(a.to(wide).numpy(), b.to(wide).numpy())
            tolerance = {"rtol": 1e-2 if dtype == F.bfloat16 else 1e-5, "atol": 1e-4}
            np.testing.assert_allclose(linalg.cross(a, b).to(wide).numpy(), exact, **tolerance)
            np.testing.assert_allclose(linalg.cross(b, a).to(wide).numpy(), -exact, **tolerance)
            turned = linalg.cross(a.mT, b.mT, dim=0).to(wide).numpy()
            np.testing.assert_allclose(turned, exact.T, **tolerance)
    a, b = F.tensor(normal((7, 5, 4))), F.tensor(normal((1, 5, 4), 1))
    left, right = a[..., 1:], b[..., :3]
    exact = np.cross(left.numpy(), right.numpy())
    np.testing.assert_allclose(linalg.cross(left, right).numpy(), exact)
    np.testing.assert_allclose(
        linalg.cross(left, right[:, :1]).numpy(), np.cross(left.numpy(), right[:, :1].numpy())
    )
    over = F.func.vmap(linalg.cross)(left, right.expand(7, 5, 3))
    np.testing.assert_allclose(over.numpy(), exact)
    left.requires_grad_()
    g = F.tensor(normal((7, 5, 3), 2))
    (found,) = F.autograd.grad(linalg.cross(left, right), left, g)
    np.testing.assert_allclose(found.numpy(), np.cross(right.numpy(), g.numpy()))
    broken = F.zeros(40, 3)
    broken[9, 0], broken[17, 1] = float("nan"), float("inf")
    got = linalg.cross(broken, F.ones(40, 3)).numpy()
    assert np.isnan(got[9]).tolist() == [False, True, True] and got[17].tolist() == [np.inf, 0, -np.inf]
    assert np.isfinite(np.delete(got, [9, 17], 0)).all()


@pytest.mark.parametrize("dtype", [F.float32, F.float64, F.bfloat16, F.int64, F.complex128])
def test_powers_of_vandermonde_matrices(dtype):
    wide = F.complex128 if dtype.is_complex else F.float64
    for count in (1, 3, 16, 35):
        x = F.tensor(normal((count, 4)) * 3).to(dtype)
        for n in (2, 3, 4, 5, 9):
            exact = x.to(wide).numpy()[..., None] ** np.arange(n)
            tolerance = {"rtol": 1e-2 if dtype == F.bfloat16 else 1e-6}
            np.testing.assert_allclose(linalg.vander(x, N=n).to(wide).numpy(), exact, **tolerance)
            np.testing.assert_allclose(
                linalg.vander(x[:, ::2], N=n).to(wide).numpy(), exact[:, ::2], **tolerance
            )
            exact = x[:, 0].to(wide).numpy()[:, None] ** np.arange(n)[::-1]
            np.testing.assert_allclose(F.vander(x[:, 0], n).to(wide).numpy(), exact, **tolerance)
    if not dtype.is_floating_point:
        return
    special = F.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0], dtype=dtype)
    with np.errstate(invalid="ignore"):
        exact = special.double().numpy()[:, None] ** np.arange(4)
    got = linalg.vander(special, N=4).double().numpy()
    np.testing.assert_array_equal(got, exact)
    assert np.signbit(got[4]).tolist() == [False, True, False, True]
    if dtype != F.float64:
        return
    x = F.tensor([2.0, -3.0, 0.0], dtype=dtype, requires_grad=True)
    g = F.tensor(normal((3, 4)))
    (first,) = F.autograd.grad((linalg.vander(x, N=4) * g).sum(), x, create_graph=True)
    y, w = x.detach().numpy(), g.numpy()
    np.testing.assert_allclose(first.detach().numpy(), w[:, 1] + 2 * y * w[:, 2] + 3 * y * y * w[:, 3])
    (second,) = F.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), 2 * w[:, 2] + 6 * y * w[:, 3])
