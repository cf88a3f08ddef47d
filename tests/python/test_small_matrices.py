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
    identity = np.broadcast_to(np.eye(vectors.shape[-1]), vectors.shape)
    near(vectors.mT @ vectors, identity, dtype)


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
    found += [linalg.solve_triangular(a, b, upper=True), F.cholesky_solve(b, linalg.cholesky_ex(s)[0])]
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
