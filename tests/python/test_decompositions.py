"""Decompositions of matrices: what they multiply to, their conventions, gradients, nothing and failures."""

import itertools

import numpy as np
import pytest

import facula as F
from facula import linalg

DTYPES = [F.float32, F.float64, F.complex64, F.complex128]
SHAPES = [
    (4, 4),
    (5, 3),
    (3, 5),
    (2, 4, 3),
    (2, 2, 3, 3),
    (0, 3),
    (3, 0),
    (0, 0),
    (0, 3, 2),
    (2, 0, 3),
    (1, 1),
]


def random(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if dtype.is_complex:
        x = x + 1j * rng.standard_normal(shape)
    return F.tensor(x).to(dtype)


def close(a, b, scale=1.0):
    eps = 1e-12 if a.dtype in (F.float64, F.complex128) else 1e-4
    assert a.shape == b.shape and a.dtype == b.dtype
    assert np.allclose(a.numpy(), b.numpy(), rtol=eps, atol=eps * scale)


@pytest.mark.parametrize(("dtype", "shape"), list(itertools.product(DTYPES, SHAPES)))
def test_factors_multiply_to_the_matrix(dtype, shape):
    a = random(shape, dtype)
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(a, mode)
        close(q @ r, a)
        diagonal = r.diagonal(0, -2, -1)
        assert not dtype.is_complex or bool((diagonal.imag == 0).all())
    for full in (False, True):
        u, s, vh = linalg.svd(a, full_matrices=full)
        k = s.shape[-1]
        close((u[..., :k] * s.unsqueeze(-2).to(dtype)) @ vh[..., :k, :], a)
        close(s, linalg.svdvals(a))
        assert bool((s[..., 1:] <= s[..., : max(k - 1, 0)]).all())
    p, lower, upper = linalg.lu(a)
    close(p @ lower @ upper, a)
    h = a[..., : min(shape[-2:]), : min(shape[-2:])]
    h = (h + h.mH).contiguous()
    values, vectors = linalg.eigh(h)
    close(h @ vectors, vectors * values.unsqueeze(-2).to(dtype), 10)
    close(values, linalg.eigvalsh(h, UPLO="U"), 10)
    general = a[..., : min(shape[-2:]), : min(shape[-2:])].contiguous()
    values, vectors = linalg.eig(general)
    close(general.to(vectors.dtype) @ vectors, vectors * values.unsqueeze(-2), 10)
    close(general @ linalg.pinv(general) @ general, general, 100)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solvers_agree_with_numpy(dtype):
    a, b = random((5, 3), dtype), random((5, 2), dtype, 1)
    expected = np.linalg.lstsq(a.numpy(), b.numpy(), rcond=None)
    for driver in ("gels", "gelsy", "gelsd", "gelss"):
        x, residuals, rank, values = linalg.lstsq(a, b, driver=driver)
        close(x, F.tensor(expected[0]).to(dtype), 10)
        if driver != "gelsy":
            close(residuals, F.tensor(expected[1]).to(residuals.dtype), 10)
        assert rank.numel() == (driver != "gels") and values.numel() == 3 * (driver in ("gelsd", "gelss"))
    s, rhs = random((2, 4, 4), dtype), random((4, 3), dtype, 1)
    factors = linalg.lu_factor(s)
    close(s @ linalg.lu_solve(*factors, rhs), rhs.expand(2, 4, 3).contiguous(), 100)
    close(s.mH @ linalg.lu_solve(*factors, rhs, adjoint=True), rhs.expand(2, 4, 3).contiguous(), 100)
    right = rhs.mT.contiguous()
    close(linalg.lu_solve(*factors, right, left=False) @ s, right.expand(2, 3, 4).contiguous(), 100)
    h = s + s.mH
    ld, pivots = linalg.ldl_factor(h, hermitian=True)
    close(h @ linalg.ldl_solve(ld, pivots, s, hermitian=True), s, 100)
    d = s @ s.mH + F.eye(4, dtype=dtype)
    lower = linalg.cholesky(d)
    close(d @ F.cholesky_inverse(lower), F.eye(4, dtype=dtype).expand(2, 4, 4).contiguous(), 100)
    close(d @ F.cholesky_solve(s, lower), s, 100)


def check_gradient(f, *shapes, complex_too=True, hermitian=False):
    for dtype in (F.float64, F.complex128) if complex_too else (F.float64,):
        xs = [random(shape, dtype, k).requires_grad_() for k, shape in enumerate(shapes)]
        g = F.autograd.grad(f(*xs), xs)
        direction = [random(shape, dtype, 10 + k) for k, shape in enumerate(shapes)]
        step = 1e-6
        with F.no_grad():
            up = f(*[x + step * d for x, d in zip(xs, direction, strict=True)])
            down = f(*[x - step * d for x, d in zip(xs, direction, strict=True)])
        found = sum(
            (a.conj() * d).real.sum() if a.is_complex() else (a * d).sum()
            for a, d in zip(g, direction, strict=True)
        )
        assert abs(((up - down) / (2 * step) - found).item()) < 1e-5 * max(1.0, abs(found.item()))


def invariant(x):  # of vectors up to phase
    return (x.abs() ** 2 * F.arange(x.numel(), dtype=F.float64).view(x.shape)).sum()


def weight(x):
    x = x.real if x.is_complex() else x
    return (x * F.arange(x.numel(), dtype=F.float64).view(x.shape)).sum()


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 3)])
def test_gradients_against_differences(shape):
    check_gradient(lambda a: weight(linalg.qr(a)[0]) + weight(linalg.qr(a)[1]), shape)
    check_gradient(lambda a: sum(map(invariant, linalg.svd(a, full_matrices=False))), shape)
    check_gradient(lambda a: invariant(linalg.svdvals(a)), shape)
    check_gradient(lambda a: weight(linalg.lu(a)[1]) + weight(linalg.lu(a)[2]), shape)
    check_gradient(lambda a: weight(linalg.pinv(a)), shape)
    check_gradient(
        lambda a: invariant(linalg.matrix_norm(a, "nuc").reshape(-1)) + linalg.cond(a).sum(), shape
    )
    n = shape[-1]
    check_gradient(lambda a: weight(F.matrix_exp(a)), [*shape[:-2], n, n])
    check_gradient(lambda a: sum(map(invariant, linalg.eigh(a + a.mH))), [*shape[:-2], n, n])
    check_gradient(lambda a: invariant(linalg.eigvals(a)) + invariant(linalg.eig(a)[1]), [*shape[:-2], n, n])
    if shape[-2] >= n:
        tau = [*shape[:-2], n]
        check_gradient(lambda a, t: weight(linalg.householder_product(a, t)), shape, tau)
        other = [*shape[:-2], shape[-2], 2]
        check_gradient(lambda a, t, o: weight(F.ormqr(a, t, o)), shape, tau, other)
        check_gradient(
            lambda a, t, o: weight(F.ormqr(a, t, o.mT, left=False, transpose=True)), shape, tau, other
        )
        check_gradient(lambda a, b: weight(linalg.lstsq(a, b).solution), shape, other)


def test_exponential_of_large_and_odd_matrices():
    a = F.tensor([[0.0, -30.0], [30.0, 0.0]], dtype=F.float64)
    expected = np.array([[np.cos(30), -np.sin(30)], [np.sin(30), np.cos(30)]])
    assert np.allclose(F.matrix_exp(a).numpy(), expected, rtol=0, atol=1e-12)
    assert F.matrix_exp(F.zeros(2, 0, 0)).shape == (2, 0, 0)
    assert F.matrix_exp(F.tensor([[float("nan")]])).isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials_are_rounded_once(dtype):
    """Squarings double a relative error: none is left of those in single precision."""
    a, wide = 3 * random((2, 4, 4), dtype), F.complex128 if dtype.is_complex else F.float64
    exact = linalg.matrix_exp(a.to(wide))
    error = (linalg.matrix_exp(a).to(wide) - exact).abs()
    assert (error <= F.finfo(dtype).eps * exact.abs()).all()


def skew_hermitian(n, size, dtype):
    a = random((n, n), dtype, seed=n).numpy() * size / np.sqrt(n)
    return (a - a.conj().T) / 2


def exponential_of_skew(a):
    """By eigenvalues in double precision: a rotation, however large its matrix is."""
    values, vectors = np.linalg.eigh(-1j * a.astype(np.complex128))
    return (vectors * np.exp(1j * values)) @ vectors.conj().T


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 9, 65, 300])
def test_exponentials_of_every_norm_err_by_its_rounding(dtype, n):
    """Each degree of the polynomial and many squarings, for sizes in double precision and beyond."""
    for size in (0, 1e-9, 1e-3, 0.02, 0.2, 0.7, 2, 60):
        a = skew_hermitian(n, size, dtype)
        found, exact = linalg.matrix_exp(F.tensor(a).to(dtype)).numpy(), exponential_of_skew(a)
        norm = np.abs(a).sum(0).max()
        assert np.abs(found - exact).max() <= (8 + 32 * norm) * F.finfo(dtype).eps


@pytest.mark.parametrize("n", [2, 65, 260])
def test_exponentials_of_zero_of_a_nilpotent_matrix_and_of_its_extremes(n):
    a = np.zeros((n, n), np.float32)
    assert (F.matrix_exp(F.tensor(a)).numpy() == np.eye(n)).all()
    a[0, -1] = 3e-5
    assert (F.matrix_exp(F.tensor(a)).numpy() == np.eye(n, dtype=np.float32) + a).all()
    for odd in (np.nan, np.inf, -np.inf):
        a[1, 1] = odd
        assert F.matrix_exp(F.tensor(a)).isnan().all()
    a[:] = np.diag(np.linspace(0, 80, n, dtype=np.float32))
    found, exact = np.diag(F.matrix_exp(F.tensor(a)).numpy()), np.exp(np.diag(a).astype(np.float64))
    assert np.allclose(found, exact, rtol=80 * 1.2e-7)
    assert (F.matrix_exp(F.tensor(-1e30 * np.eye(n, dtype=np.float32))) == 0).all()


@pytest.mark.parametrize("dtype", [F.float32, F.float64, F.complex64])
@pytest.mark.parametrize("n", [4, 70, 260])
def test_exponentials_of_a_batch_are_those_of_its_matrices_for_any_number_of_threads(dtype, n):
    a = F.tensor(np.stack([skew_hermitian(n, s, dtype) + s * np.eye(n) for s in (0.01, 0.5, 9)])).to(dtype)
    alone, threads = [F.matrix_exp(x) for x in a], F.get_num_threads()
    try:
        for k in (1, 2, 3):
            F.set_num_threads(k)
            assert (F.matrix_exp(a) == F.stack(alone)).all()
            assert (F.matrix_exp(a.mT.contiguous().mT)[1] == alone[1]).all()
    finally:
        F.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [F.bfloat16, F.float16])
@pytest.mark.parametrize("n", [3, 70])
def test_exponentials_of_16_bits_are_rounded_once(dtype, n):
    a = F.tensor(skew_hermitian(n, 2, F.float64)).to(dtype)
    error = F.matrix_exp(a).double() - F.matrix_exp(a.double())
    assert error.abs().max() <= F.finfo(dtype).eps


@pytest.mark.parametrize("n", [40, 150])
def test_gradients_of_exponentials_in_single_precision(n):
    a, seed = F.tensor(skew_hermitian(n, 2, F.float64)), random((n, n), F.float64, seed=1)
    single, double = a.float().requires_grad_(), a.clone().requires_grad_()
    F.matrix_exp(single).backward(seed.float())
    F.matrix_exp(double).backward(seed)
    assert (single.grad.double() - double.grad).abs().max() <= 1e-4 * double.grad.abs().max()


@pytest.mark.parametrize("dtype", [F.float64, F.complex128])
@pytest.mark.parametrize("name", ["eigh", "eig", "svd"])
def test_gradients_of_vectors_have_gradients(name, dtype):
    """What is on the diagonal of differences of eigenvalues, 0, is never divided by."""
    a = random((3, 3), dtype)
    a = (a + a.mH if name == "eigh" else a).requires_grad_()

    def f(a):  # does not depend on signs and phases
        vectors = getattr(linalg, name)(a)[0 if name == "svd" else 1]
        return (vectors.abs() ** 4).sum()

    (first,) = F.autograd.grad(f(a), a, create_graph=True)
    (second,) = F.autograd.grad(first.abs().square().sum(), a)
    assert first.abs().max() > 1e-3 and second.isfinite().all()
    step, d = 1e-6, random((3, 3), dtype, 1)
    d = d + d.mH if name == "eigh" else d

    def size(a):
        return F.autograd.grad(f(a), a)[0].abs().square().sum().item()

    low, high = (size((a + s * step * d).detach().requires_grad_()) for s in (-1, 1))
    expected = (high - low) / (2 * step)
    assert abs((second * d.conj()).real.sum().item() - expected) < 1e-4 * max(1, abs(expected))


def columns(x):
    return x.dim() >= 2 and x.mT.is_contiguous() and not x.is_contiguous()


# (function, its matrices, which results lie by columns in PyTorch: if out= is empty, and of another shape)
LAID_OUT = [
    ("linalg.qr", 1, "11", "11"),
    ("qr", 1, "11", "11"),
    ("linalg.svd", 1, "101", "101"),
    ("svd", 1, "100", "100"),
    ("linalg.eigh", 1, "01", "01"),
    ("linalg.eig", 1, "01", "00"),
    ("linalg.cholesky", 1, "1", "1"),
    ("linalg.cholesky_ex", 1, "10", "10"),
    ("linalg.inv", 1, "1", "1"),
    ("linalg.inv_ex", 1, "10", "10"),
    ("linalg.lu_factor", 1, "10", "10"),
    ("linalg.lu_factor_ex", 1, "100", "100"),
    ("linalg.ldl_factor", 1, "10", "10"),
    ("linalg.ldl_factor_ex", 1, "100", "100"),
    ("linalg.lu", 1, "000", "000"),
    ("linalg.pinv", 1, "0", "0"),
    ("geqrf", 1, "10", "00"),
    ("linalg.solve", 2, "1", "1"),
    ("linalg.solve_ex", 2, "10", "10"),
    ("linalg.lstsq", 2, "1000", "0000"),
    ("cholesky_inverse", 1, "1", "1"),
    ("cholesky_solve", 2, "0", "0"),
    ("triangular_solve", 2, "11", "11"),
    ("fft.ifft", 1, "0", "0"),
]


@pytest.mark.parametrize("name, count, empty, other", LAID_OUT, ids=[c[0] for c in LAID_OUT])
def test_an_out_that_takes_its_shape_lies_as_in_pytorch(name, count, empty, other):
    f = F
    for part in name.split("."):
        f = getattr(f, part)
    a = random((2, 3, 3), F.float64)
    given = [a @ a.mT + 3 * F.eye(3, dtype=F.float64), random((2, 3, 4), F.float64, 1)][:count]
    given = given[::-1] if name in ("cholesky_solve", "triangular_solve") else given
    results = f(*given)
    results = results if isinstance(results, tuple) else (results,)
    for shape, wanted in (((0,), empty), ((7, 5), other)):
        out = tuple(F.empty(shape if r.dim() else (0,), dtype=r.dtype) for r in results)
        f(*given, out=out if len(out) > 1 else out[0])
        assert "".join(str(int(columns(o))) for o in out) == wanted
        for o, r in zip(out, results):
            assert np.array_equal(o.numpy(), r.numpy())


def test_an_out_of_a_transform_lies_along_its_dimension_where_pytorch_conjugates_it():
    x = random((4, 5, 6), F.float64)
    for f, n in ((F.fft.ifft, 4), (F.fft.ihfft, 3)):
        out = f(x, dim=0, out=F.empty(0, dtype=F.complex128))
        assert out.stride() == (1, 6 * n, n) and F.equal(out, f(x, dim=0))


def test_gradients_for_triangular_factors_are_those_of_both_triangles():
    """As in PyTorch: what a factor without zeros would get."""
    a = random((3, 3), F.float64)
    factor = linalg.cholesky(a @ a.mT + 3 * F.eye(3, dtype=F.float64)).requires_grad_()
    b = random((3, 2), F.float64, 1)
    x = linalg.inv(factor @ factor.mT)
    for ours, same in ((F.cholesky_inverse(factor), x), (F.cholesky_solve(b, factor), x @ b)):
        weights = random(ours.shape, F.float64, 2)
        (g,) = F.autograd.grad((ours * weights).sum(), factor)
        (wanted,) = F.autograd.grad((same * weights).sum(), factor, retain_graph=True)
        assert np.allclose(g.numpy(), wanted.numpy(), rtol=1e-10)


def test_low_rank_approximations():
    a = random((8, 3), F.float64) @ random((3, 6), F.float64, 1)
    for x in (a, a.mT.contiguous(), a.expand(2, 8, 6)):
        u, s, v = F.svd_lowrank(x, q=4)
        close(u @ s.diag_embed() @ v.mT, x.clone())
        close(s[..., :3].clone(), linalg.svdvals(x)[..., :3].clone())
    u, s, v = F.pca_lowrank(a, q=3)
    close(u @ s.diag() @ v.mT, a - a.mean(-2, keepdim=True))
    with pytest.raises(ValueError, match="min"):
        F.pca_lowrank(a, q=7)


def test_ctc_loss_of_many_frames():
    """The variables are hundreds, the gradient is a difference of probabilities."""
    rng = np.random.default_rng(0)
    x = F.tensor(rng.standard_normal((200, 1, 20))).log_softmax(-1)
    target = F.tensor(rng.integers(1, 20, (1, 40)))
    gradients = []
    for dtype in (F.float32, F.float64):
        y = x.to(dtype).requires_grad_()
        F.nn.functional.ctc_loss(y, target, [200], [40], reduction="sum").backward()
        gradients.append(y.grad.double())
    assert (gradients[0] - gradients[1]).abs().max() < 1e-6


def test_failures_say_what_failed():
    singular = F.zeros(2, 3, 3)
    singular[0] = F.eye(3)
    with pytest.raises(linalg.LinAlgError, match="Batch element 1"):
        linalg.inv_ex(singular, check_errors=True)
    assert linalg.inv_ex(singular).info.tolist() == [0, 1]
    assert linalg.cholesky_ex(-singular).info.tolist() == [1, 1]
    assert linalg.solve_ex(singular, singular).info.tolist() == [0, 1]
    with pytest.raises(RuntimeError, match=r"U\[1,1\] is zero"):
        linalg.lu_factor(singular)
    nan = F.full((3, 3), float("nan"))
    for f in (linalg.svd, linalg.svdvals, linalg.eigh, linalg.eigvalsh):
        with pytest.raises(linalg.LinAlgError):
            f(nan)
    with pytest.raises(RuntimeError, match="infs or NaNs"):
        linalg.eig(nan)


def test_orthogonal_parametrization_stays_orthogonal():
    for shape, way in itertools.product([(3, 3), (4, 2), (2, 4)], ["matrix_exp", "cayley", "householder"]):
        layer = F.nn.Linear(*shape, bias=False)
        F.nn.utils.parametrizations.orthogonal(layer, orthogonal_map=way)
        optimizer = F.optim.SGD(layer.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            layer(F.ones(1, shape[0])).square().sum().backward()
            optimizer.step()
        w = layer.weight if shape[1] >= shape[0] else layer.weight.T
        assert F.allclose(w.T @ w, F.eye(w.shape[1]), atol=1e-5)


def test_ctc_loss_by_enumeration():
    rng = np.random.default_rng(0)
    frames, classes, target = 4, 3, [1, 2]
    x = F.tensor(rng.standard_normal((frames, 1, classes))).log_softmax(-1)
    total = 0.0
    for path in itertools.product(range(classes), repeat=frames):
        collapsed = [k for k, _ in itertools.groupby(path) if k]
        if collapsed == target:
            total += np.exp(sum(x[t, 0, k].item() for t, k in enumerate(path)))
    loss = F.nn.functional.ctc_loss(x, F.tensor([target]), [frames], [2], reduction="none")
    assert abs(loss.item() + np.log(total)) < 1e-12


def test_stft_and_back():
    x = F.tensor(np.random.default_rng(0).standard_normal((2, 200)))
    window = 0.5 + F.arange(20, dtype=F.float64) / 20
    for n, hop, normalized, onesided in [(20, 5, False, True), (32, 7, True, False)]:
        s = F.stft(x, n, hop, 20, window, normalized=normalized, onesided=onesided, return_complex=True)
        y = F.istft(s, n, hop, 20, window, normalized=normalized, onesided=onesided, length=200)
        assert np.allclose(y.numpy()[:, :190], x.numpy()[:, :190], rtol=0, atol=1e-12)
