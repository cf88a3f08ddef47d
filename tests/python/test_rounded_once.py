"""Gradients of 16-bit operands are computed in float32 and rounded once: they are those of float64 to half a
unit in the last place, where PyTorch rounds every step.
"""

import numpy as np
import pytest

import facula

F = facula.nn.functional


def operands(*shapes, low=0.2, high=2.0):
    random = np.random.default_rng(7)
    return [facula.from_numpy(random.uniform(low, high, s)).to(facula.float16) for s in shapes]


def gradients(f, given, dtype):
    leaves = [x.to(dtype).detach().requires_grad_() for x in given]
    y = f(*leaves)
    outs = [t for t in (y if isinstance(y, tuple) else (y,)) if t.requires_grad]
    seeds = [
        facula.from_numpy(0.5 + np.arange(t.numel()) * 7919 % 13 / 16).to(dtype).reshape(t.shape)
        for t in outs
    ]
    return facula.autograd.grad(outs, leaves, seeds)


PLANES, ROWS, COLUMNS = (4, 6, 5), (6, 5), (6, 1)
CASES = {
    "div": (lambda a, b: a / b, PLANES, ROWS),
    "mul": (lambda a, b: a * b, PLANES, COLUMNS),
    "atan2": (facula.atan2, PLANES, ROWS),
    "pow": (facula.pow, PLANES, COLUMNS),
    "addcdiv": (lambda a, b, c: facula.addcdiv(a, b, c, value=0.75), (6, 5), (6, 1), (1, 5)),
    "addcmul": (lambda a, b, c: facula.addcmul(a, b, c, value=0.75), (6, 5), (6, 1), (1, 5)),
    "ldexp": (facula.ldexp, PLANES, ROWS),
    "logaddexp": (facula.logaddexp, PLANES, ROWS),
    "erfinv": (lambda a: facula.erfinv(a / 2.5), PLANES),
    "logsumexp": (lambda a: facula.logsumexp(a, 1), PLANES),
    "softmax": (lambda a: facula.softmax(a, 1), PLANES),
    "log_softmax": (lambda a: facula.log_softmax(a, 2), PLANES),
    "cumprod": (lambda a: facula.cumprod(a, 1), PLANES),
    "std": (lambda a: facula.std(a, 1), PLANES),
    "std_mean": (lambda a: facula.std_mean(a, 1), PLANES),
    "var_mean": (lambda a: facula.var_mean(a, 1), PLANES),
    "softsign": (F.softsign, PLANES),
    "normalize": (lambda a: F.normalize(a, 2.0, 1), PLANES),
    "normalize by p": (lambda a: F.normalize(a, 3.0, 2), PLANES),
    "cosine_similarity": (lambda a, b: F.cosine_similarity(a, b, 1), PLANES, PLANES),
    "soft_margin_loss": (lambda a, b: F.soft_margin_loss(a, b), PLANES, PLANES),
    "poisson_nll_loss": (lambda a, b: F.poisson_nll_loss(a, b, full=True, reduction="none"), PLANES, PLANES),
    "gaussian_nll_loss": (lambda a, b, c: F.gaussian_nll_loss(a, b, c, reduction="sum"), ROWS, ROWS, COLUMNS),
    "cross_entropy": (lambda a, b: F.cross_entropy(a, b), (4, 6, 5), (4, 6, 5)),
}


# Units of error where a result of 16 bits, or a factor, is read: as in PyTorch.
MORE = {"div": 1.01, "ldexp": 1.51}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_16_bits_are_the_nearest_numbers(name, dtype):
    f, *shapes = CASES[name]
    short = getattr(facula, dtype)
    given = [x.to(short) for x in operands(*shapes)]
    if name == "erfinv":  # its operand is rounded on the way

        def f(a):
            return facula.erfinv(a)

        given = [x.to(short) for x in operands(*shapes, low=-0.9, high=0.9)]
    for g, exact in zip(gradients(f, given, short), gradients(f, given, facula.float64)):
        got, want = g.double().numpy(), exact.numpy()
        digits, least = (11, -24) if dtype == "float16" else (8, -133)
        unit = np.exp2(np.maximum(np.frexp(want)[1] - digits, least))
        # Where terms cancel float32 has its own error.
        assert (np.abs(got - want) <= MORE.get(name, 0.501) * unit + 4e-7).all(), name


def test_a_vector_of_length_0_has_derivatives_in_normalize():
    x = facula.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=facula.float64, requires_grad=True)
    (g,) = facula.autograd.grad(F.normalize(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(g[1].detach().numpy(), [0.2 - 0.6 * 1.4 / 5, 0.2 - 0.8 * 1.4 / 5])
    (h,) = facula.autograd.grad(g[1].sum(), x)
    assert np.isfinite(h.numpy()).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normalize_and_cosine_similarity_have_the_derivatives_of_their_steps(dtype):
    x, y = (t.to(getattr(facula, dtype)).requires_grad_() for t in operands((3, 4), (3, 4), low=-1.0))

    def steps(t):
        return t / t.norm(2, 1, keepdim=True).clamp(min=0.7)

    for f, by_steps in (
        (lambda: F.normalize(x, eps=0.7), lambda: steps(x)),
        (lambda: F.cosine_similarity(x, y, 1), lambda: (F.normalize(x) * F.normalize(y)).sum(1)),
    ):
        got, want = (
            facula.autograd.grad((g() ** 2).sum(), (x, y), allow_unused=True, create_graph=True)
            for g in (f, by_steps)
        )
        second = [
            facula.autograd.grad(sum((g**2).sum() for g in gs if g is not None), (x, y), allow_unused=True)
            for gs in (got, want)
        ]
        for a, b in (*zip(got, want), *zip(*second)):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(
                    a.detach().numpy(),
                    b.detach().numpy(),
                    rtol=1e-4 if dtype == "float32" else 1e-10,
                    atol=1e-5,
                )


def test_directions_of_unpooled_elements_come_from_the_last_at_a_place():
    indices = facula.tensor([[[0, 2, 2]]])
    x, direction = facula.tensor([[[1.0, 2.0, 3.0]]]), facula.tensor([[[1.0, 10.0, 100.0]]])
    y, slope = facula.func.jvp(lambda t: F.max_unpool1d(t, indices, 2, output_size=[5]), (x,), (direction,))
    assert y.tolist() == [[[1.0, 0.0, 3.0, 0.0, 0.0]]]
    assert slope.tolist() == [[[1.0, 0.0, 100.0, 0.0, 0.0]]]  # PyTorch's
    x.requires_grad_()
    (g,) = facula.autograd.grad(F.max_unpool1d(x, indices, 2, output_size=[5]).sum(), x)
    assert g.tolist() == [[[1.0, 1.0, 1.0]]]


@pytest.mark.parametrize(
    "dtype, at_2, at_8",
    [
        ("float32", 322842423984128.0, 20177651499008.0),
        ("float64", 1.6451975368302367e32, 1.028248460518898e31),
    ],
)
def test_trigamma_at_its_poles_is_pytorchs_large_number(dtype, at_2, at_8):
    y = facula.polygamma(1, facula.tensor([0.0, -2.0, -8.0], dtype=getattr(facula, dtype)))
    want = np.array([np.inf, at_2, at_8])
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", [facula.bfloat16, facula.float16])
def test_sums_of_many_rows_are_rounded_once(dtype):
    """Of 10,000 rows that go to 3 places; the exact sums are those of float64."""
    seed = np.random.SeedSequence().entropy % 2**32
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    rows = facula.from_numpy(random.uniform(-1, 1, (10_000, 8))).to(dtype)
    index = facula.from_numpy(random.integers(0, 3, 10_000))
    exact = facula.zeros(3, 8, dtype=facula.float64).index_add(0, index, rows.double())
    wide = index[:, None].expand(-1, 8)
    zeros = facula.zeros(3, 8, dtype=dtype)
    table, offsets = rows, facula.tensor([0, 4_000, 7_000])
    bags = facula.stack([rows.double()[a:b].sum(0) for a, b in ((0, 4_000), (4_000, 7_000), (7_000, 10_000))])
    found = {
        "index_add": (zeros.index_add(0, index, rows), exact),
        "index_add_": (zeros.clone().index_add_(0, index, rows), exact),
        "scatter_add": (zeros.scatter_add(0, wide, rows), exact),
        "scatter_add_": (zeros.clone().scatter_add_(0, wide, rows), exact),
        "index_put": (zeros.index_put((index,), rows, accumulate=True), exact),
        "index_put_": (zeros.clone().index_put_((index,), rows, accumulate=True), exact),
        "embedding_bag": (F.embedding_bag(facula.arange(10_000), table, offsets, mode="sum"), bags),
    }
    bound = facula.finfo(dtype).eps * exact.abs()
    for name, (got, want) in found.items():
        limit = bound if want is exact else facula.finfo(dtype).eps * want.abs()
        error = (got.double() - want).abs()
        assert got.dtype == dtype and (error <= limit + 1e-4).all(), name


def test_sums_of_rows_need_one_dtype():
    with pytest.raises(RuntimeError, match=r"index_add.*must have the same scalar type"):
        facula.zeros(3, 2).half().index_add(0, facula.tensor([0]), facula.ones(1, 2))
    with pytest.raises(RuntimeError, match=r"scatter_add.*must have the same scalar type"):
        facula.zeros(3, 2).scatter_add(0, facula.tensor([[0, 0]]), facula.ones(1, 2).half())
