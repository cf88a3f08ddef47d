"""Random numbers: what they are drawn from, and that new numbers compile nothing."""

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import facula._C as C
import numpy as np
import pytest

import facula as F

PEER = Path(os.environ.get("FACULA_PEER", Path(__file__).resolve().parents[2] / ".peer/bin/python"))


@pytest.fixture(autouse=True)
def seeded():
    F.manual_seed(11)


RANGES = [
    (0, 2),
    (0, 3),
    (-5, 9),
    (0, 1 << 16),
    (7, 7 + (1 << 16) + 1),
    (0, 3 << 30),
    (0, 1 << 32),
    (-3, (1 << 32) + 5),
    (0, 3 << 59),
    (-(1 << 60), 1 << 60),
    (-(3 << 58), 3 << 58),
]


@pytest.mark.parametrize("low, high", RANGES)
def test_integers_fill_their_range_evenly(low, high):
    n, many = high - low, 200_000
    x = [v - low for v in F.randint(low, high, (many,)).tolist()]
    assert min(x) >= 0 and max(x) < n
    # Shares of the range, and of the remainders: each count is within six deviations.
    parts, rests = min(n, 48), min(n, 64)
    first = [-(-b * n // parts) for b in range(parts + 1)]
    shares = np.bincount([v * parts // n for v in x], minlength=parts)
    remainders = np.bincount([v % rests for v in x], minlength=rests)
    for counts, widths in [
        (shares, np.diff(np.array(first, dtype=object))),
        (remainders, np.array([(n - r + rests - 1) // rests for r in range(rests)], dtype=object)),
    ]:
        expected = (widths * many / n).astype(float)
        assert (np.abs(counts - expected) < 6 * np.sqrt(expected)).all(), (counts, expected)
    mean = sum(x) / many / n
    assert abs(mean - 0.5 + 0.5 / n) < 6 * (1 / 12 / many) ** 0.5


def test_the_known_bias_is_gone():
    """A third of what lies below 3 * 2^30 lies below 2^30; of 3 * 2^59 below 2^59."""
    for bits in (30, 31, 32, 59):
        x = F.randint(0, 3 << bits, (300_000,))
        assert abs((x < (1 << bits)).double().mean().item() - 1 / 3) < 0.006
    x = F.randint(0, 1 << 60, (100_000,))
    for k in range(60):
        assert abs(((x >> k) & 1).double().mean().item() - 0.5) < 0.01, k


@pytest.mark.parametrize("dtype, last", [(F.uint8, 255), (F.int8, 127), (F.bool, 1), (F.int16, 32767)])
def test_random_fills_up_to_the_largest(dtype, last):
    x = F.empty(400_000, dtype=dtype).random_()
    assert x.min().item() == 0 and x.max().item() == last
    assert abs(x.double().mean().item() / last - 0.5) < 0.01


def test_random_takes_ranges_as_pytorch_does():
    assert set(F.empty(1000).random_(4).tolist()) == {0, 1, 2, 3}
    assert set(F.empty(1000, dtype=F.int64).random_(-2, 2).tolist()) == {-2, -1, 0, 1}
    x = F.empty(100_000, dtype=F.int64).random_().double() / 2.0**63
    assert abs(x.mean().item() - 0.5) < 0.01 and abs(x.std().item() - 12**-0.5) < 0.01
    x = F.empty(1000, dtype=F.int8).random_(120, None)
    assert x.min().item() == 120 and x.max().item() == 127
    x = F.empty(100_000).random_()
    assert x.max().item() <= 2**24 and x.max().item() > 2**23 and (x == x.trunc()).all()
    for wrong, text in [((5, 5), "less than"), ((0, 300), "out of bounds"), ((-1, 3), "out of bounds")]:
        with pytest.raises(RuntimeError, match=text):
            F.empty(3, dtype=F.uint8).random_(*wrong)


def compiled():
    return C.cache_stats()["compiled"] + C.cache_stats()["disk_hits"] + C.cache_stats()["shipped_hits"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda k: F.nn.functional.dropout(F.ones(64), k / 100),
        lambda k: F.nn.functional.dropout(F.ones(64).requires_grad_(), k / 100).sum().backward(),
        lambda k: F.empty(64).bernoulli_(k / 100),
        lambda k: F.empty(64).normal_(k, k + 1),
        lambda k: F.empty(64).uniform_(-k, k),
        lambda k: F.randint(k, 3 * k + 5, (64,)),
        lambda k: F.empty(64, dtype=F.int64).random_(k + 1),
        lambda k: F.nn.functional.alpha_dropout(F.ones(64), k / 100, training=True),
        lambda k: F.nn.functional.dropout2d(F.ones(2, 3, 4, 4), k / 100),
        lambda k: F.empty(64).exponential_(k + 1),
    ],
)
def test_a_new_number_compiles_nothing(draw):
    draw(40), draw(41)
    before = compiled()
    for k in range(1, 40):
        draw(k)
    assert compiled() == before


def test_dropout_scales_what_it_keeps():
    x = F.full((100_000,), 3.0, requires_grad=True)
    for p in (0.0, 0.1, 0.5, 0.9):
        y = F.nn.functional.dropout(x, p)
        kept = y != 0
        assert abs(kept.float().mean().item() - (1 - p)) < 0.01
        assert F.allclose(y[kept], F.full_like(y[kept], 3 / (1 - p)))
        (g,) = F.autograd.grad(y.sum(), x)
        assert F.allclose(g, y / 3)
    y = F.nn.functional.dropout(x, 1.0)
    assert (y == 0).all() and (F.autograd.grad(y.sum(), x)[0] == 0).all()
    for dtype in (F.float16, F.bfloat16, F.float64):
        y = F.nn.functional.dropout(F.ones(1000, dtype=dtype), 0.25)
        assert y.dtype == dtype and set(y.tolist()) == {0.0, F.tensor(1 / 0.75, dtype=dtype).item()}
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.dropout(x, 1.5)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.dropout(x, float("nan"))


def test_integers_are_drawn_from_all_of_64_bits():
    """Bounds beyond 2^61, where sizes end."""
    x = F.randint(-(2**63), 2**63 - 1, (100_000,)).double() / 2.0**63
    assert abs(x.mean().item()) < 0.01 and abs(x.std().item() - 3**-0.5) < 0.01
    x = F.randint(0, 3 * 2**61, (100_000,)).double() / 2**61
    assert all(abs(((x >= k) & (x < k + 1)).float().mean().item() - 1 / 3) < 0.01 for k in range(3))
    x = F.empty(100_000, dtype=F.int64).random_(2**62, 2**63 - 1).double() / 2**62
    assert x.min() >= 1 and abs((x < 1.5).float().mean().item() - 0.5) < 0.01
    assert F.empty(100_000, dtype=F.int64).random_(-(2**63), None).lt(0).float().mean().item() > 0.49
    with pytest.raises(ValueError, match="bounds must be below 2\\^63"):
        F.randint(0, 2**63, (2,))
    with pytest.raises(OverflowError, match="64 bits"):  # as other numbers beyond; PyTorch says ValueError
        F.randint(-(2**70), 5, (2,))
    for refused in (
        lambda: F.randint(0, 70000, (2,), dtype=F.float16),
        lambda: F.empty(2, dtype=F.float16).random_(0, 70000),
        lambda: F.randint(0, 2**31 + 1, (2,), dtype=F.int32),
        lambda: F.randint(-1, 1, (2,), dtype=F.uint8),
    ):
        with pytest.raises(RuntimeError, match="out of bounds"):
            refused()
    with pytest.raises(TypeError, match="whole"):
        F.randint(0.5, 2, (2,))


def test_the_gradient_of_drawn_numbers_is_zero_as_pytorchs():
    # What a policy's loss relies on: its gradient reaches the mean by the logarithm alone.
    mean = F.tensor([1.0, 2.0], requires_grad=True)
    std = F.tensor([[0.5], [1.0]], requires_grad=True)
    for drawn in (F.normal(mean, std), F.normal(mean, 1.0), F.normal(0.5, std)):
        drawn.sum().backward()
    assert mean.grad.tolist() == [0.0, 0.0] and std.grad.tolist() == [[0.0], [0.0]]
    mean.grad = None
    action = F.normal(mean, 1.0)
    (-((action - mean) ** 2) / 2).sum().backward()
    np.testing.assert_array_equal(mean.grad.numpy(), (action - mean).detach().numpy())


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_picks_in_proportion_to_the_weights(replacement):
    weights = F.tensor([[0.0, 1.0, 3.0, 0.0], [2.0, 0.0, 1.0, 5.0]]).repeat(20_000, 1)
    picked = F.multinomial(weights, 2 if replacement else 1, replacement).reshape(20_000, 2, -1)
    for row, wanted in enumerate([[0.0, 0.25, 0.75, 0.0], [0.25, 0.0, 0.125, 0.625]]):
        counts = np.bincount(picked[:, row].flatten().numpy(), minlength=4)
        n = counts.sum()
        for count, p in zip(counts, wanted):
            assert abs(count - n * p) <= 6 * (n * p * (1 - p)) ** 0.5, (row, counts)


def test_multinomial_without_replacement_takes_each_once():
    picked = F.multinomial(F.tensor([1.0, 5.0, 0.5, 2.0]), 4)
    assert sorted(picked.tolist()) == [0, 1, 2, 3] and picked.is_contiguous()


def test_a_batch_of_picks_is_checked_as_a_whole():
    from facula.func import vmap

    weights = F.tensor([[0.0, 1.0], [1.0, 0.0]])
    drawn = vmap(lambda w: F.multinomial(w, 3, True), randomness="different")(weights)
    assert drawn.tolist() == [[1, 1, 1], [0, 0, 0]]
    with pytest.raises(RuntimeError, match="^multinomial: probability tensor contains"):
        vmap(lambda w: F.multinomial(w, 1), randomness="different")(weights - 1)


FILLS = {
    "uniform_": (-1.0, 3.0),
    "normal_": (1.0, 2.0),
    "exponential_": (2.0,),
    "cauchy_": (),
    "log_normal_": (),
    "geometric_": (0.3,),
    "bernoulli_": (0.3,),
    "random_": (3, 1000),
}
LARGE = (3, 701, 503)  # more than a piece of a fill, and no multiple of four


@pytest.mark.parametrize("dtype", [F.float32, F.float64])
@pytest.mark.parametrize("name", FILLS)
def test_large_tensors_are_filled_with_the_numbers_of_small_ones(name, dtype):
    count, seed = math.prod(LARGE), random.randrange(2**31)

    def fill(t):
        g = F.Generator().manual_seed(seed)
        getattr(t, name)(*FILLS[name], generator=g)
        return t, F.rand(2, generator=g).tolist()

    whole, after = fill(F.empty(LARGE, dtype=dtype))
    numbers = whole.flatten()
    assert numbers[:1000].equal(fill(F.empty(1000, dtype=dtype))[0]), seed
    for t in (
        F.empty(LARGE[::-1], dtype=dtype).permute(2, 1, 0),
        F.empty(LARGE, dtype=dtype).transpose(0, 1),
        F.empty(count, 2, dtype=dtype)[:, 1],
    ):
        filled, then = fill(t)
        assert filled.flatten().equal(numbers) and then == after, seed


@pytest.mark.parametrize("name", FILLS)
def test_filling_a_large_tensor_takes_little_more_memory_than_it(name):
    t = F.empty(2**24)
    F.reset_peak_memory_stats()
    before = F.memory_stats()["current_bytes"]
    getattr(t, name)(*FILLS[name])
    assert F.memory_stats()["peak_bytes"] - before < t.nbytes / 4


@pytest.mark.parametrize("dtype", [F.float16, F.bfloat16, F.float32, F.float64])
def test_uniform_numbers_never_are_the_excluded_end(dtype):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print(f"seed {seed}")
    F.manual_seed(seed)
    n = 300_000
    assert F.rand(n, dtype=dtype).max() < 1
    assert F.rand_like(F.empty(n, dtype=dtype)).max() < 1
    for low, high in ((0, 1), (1, 2), (-1, 0), (-3, 5), (0.1, 0.3), (-0.25, 1e-3), (100, 100.5)):
        x = F.empty(n, dtype=dtype).uniform_(low, high)
        assert x.min() >= F.tensor(low, dtype=dtype) and x.double().max() < high, (low, high)
    mean = F.rand(n, dtype=dtype).double().mean().item()
    assert abs(mean - 0.5) < 5 / (12 * n) ** 0.5 + F.finfo(dtype).eps / 4


def test_a_range_without_elements_inside_gives_its_beginning():
    assert (F.empty(100, dtype=F.bfloat16).uniform_(1, 1) == 1).all()
    assert (F.empty(100, dtype=F.bfloat16).uniform_(1, 1.001) == 1).all()


# What PyTorch 2.13 draws behind manual_seed(7).
NUMBERS_OF_PYTORCH = {
    "F.rand(3)": [0.53492254, 0.198803186, 0.659211695],
    "F.rand(3, dtype=F.float64)": [0.279380429906404, 0.27369371365176565, 0.8620929614176255],
    "F.rand(2, dtype=F.float16)": [0.53515625, 0.198852539],
    "F.randn(5)": [-0.146795094, 0.786141276, 0.94682163, -1.114344, 1.69079018],
    "F.randn(18)[[0, 1, 15, 16, 17]]": [-0.820134521, 0.395631164, -1.35976899, -0.866701603, -0.564006686],
    "F.randn(3, dtype=F.float64)": [-0.1467950974849952, 0.7861412987235358, 0.9468216090039564],
    "F.randn(2, dtype=F.complex64)": [(-0.103799812 + 0.555885851j), (0.669503987 - 0.787960231j)],
    "F.empty(3).uniform_(-2, 3)": [0.674612701, -1.00598407, 1.29605842],
    "F.empty(4).normal_(5, 0.5)": [4.92660236, 5.3930707, 5.47341061, 4.44282818],
    "F.randperm(7)": [5, 0, 3, 1, 2, 6, 4],
    "F.randint(0, 10, (5,))": [5, 2, 1, 6, 3],
    "F.randint(-3, 1 << 40, (2,))": [752591849969, 108704903085],
    "F.empty(3, dtype=F.int64).random_()": [1407639518939636932, 5163590386780219894, 8087222774582268115],
    "F.empty(3).random_()": [8974492.0, 3335306.0, 11059538.0],
    "F.empty(3, dtype=F.uint8).random_()": [175, 196, 25],
    "F.empty(3, dtype=F.int32).random_(5, 50)": [5, 27, 21],
    "F.bernoulli(F.full((8,), 0.3))": [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0],
    "F.empty(8).bernoulli_(0.3)": [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
    "F.empty(3).exponential_(2)": [0.163821965, 0.159891739, 0.990587711],
    "F.empty(3).cauchy_(1, 2)": [-0.661111534, -0.722406089, 5.32378435],
    "F.multinomial(F.arange(1.0, 5), 5, replacement=True)": [1, 1, 3, 3, 3],
    "F.multinomial(F.arange(1.0, 5), 3)": [1, 3, 0],
    "F.rand_like(F.empty(2, 3).t())": [
        [0.53492254, 0.656890273],
        [0.198803186, 0.232761562],
        [0.659211695, 0.425061405],
    ],
    "F._standard_gamma(F.tensor([2.0, 0.5, 3.0]))": [1.48424721, 0.263831466, 3.4627986],
    "F._sample_dirichlet(F.tensor([2.0, 0.5, 3.0]))": [0.284836352, 0.0506309159, 0.664532721],
    "F.distributions.Gamma(F.tensor([2.5, 3.0]), 3.3).sample()": [0.5932404994964, 1.262865424],
    "F.normal(F.arange(3.0), F.ones(3))": [-0.146795094, 1.78614128, 2.94682169],
    "F.nn.Linear(2, 2).weight.flatten()": [0.0493879281, -0.425956607, 0.225159332, 0.221876353],
    "F.nn.init.xavier_normal_(F.empty(2, 2)).flatten()": [
        -0.103799812,
        0.555885851,
        0.669503987,
        -0.787960231,
    ],
    "F.cat([F.randn(3), F.rand(2), F.randn(2)])": [
        -0.146795094,
        0.786141276,
        0.94682163,
        0.365316153,
        0.851268351,
        -1.114344,
        0.445742399,
    ],
    "F.randn(300000)[[0, 1 << 18, 299999]]": [-0.820134521, -0.158565223, 1.35327697],
    "F.randn(2, generator=F.Generator().manual_seed(3))": [0.803276062, 0.174833387],
    "F.distributions.Normal(0.0, 1.0).sample((3,))": [-0.146795094, 0.786141276, 0.94682163],
    "[int(i) for i in F.utils.data.RandomSampler(range(6))]": [1, 0, 3, 2, 4, 5],
}


@pytest.fixture
def numbers_of_pytorch():
    C._use_torch_random(True)
    yield
    C._use_torch_random(False)


@pytest.mark.parametrize("call", NUMBERS_OF_PYTORCH)
def test_a_seed_gives_pytorchs_numbers_where_programs_expect_them(call, numbers_of_pytorch):
    F.manual_seed(7)
    found, expected = eval(call), NUMBERS_OF_PYTORCH[call]
    found = found if isinstance(found, list) else found.tolist()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)


def test_states_continue_pytorchs_numbers(numbers_of_pytorch):
    F.manual_seed(7)
    F.rand(1000)
    state = F.get_rng_state()
    expected = F.rand(700).tolist(), F.randn(40).tolist()
    other = F.Generator()
    for generator in (F.default_generator, other):
        generator.set_state(state)
        for seed in range(40):  # more sequences than are remembered
            F.rand(3, generator=F.Generator().manual_seed(seed))
        assert (
            F.rand(700, generator=generator).tolist(),
            F.randn(40, generator=generator).tolist(),
        ) == expected
    F.manual_seed(7)
    assert F.rand(1000)[:2].tolist() == pytest.approx([0.53492254, 0.198803186])


def test_pieces_of_large_fills_are_those_of_the_whole(numbers_of_pytorch):
    n = (1 << 19) + 7
    for fill in ("uniform_", "normal_"):
        F.manual_seed(1)
        whole = F.rand(n) if fill == "uniform_" else F.randn(n)
        F.manual_seed(1)
        assert F.equal(getattr(F.empty(n), fill)(), whole)


def test_kernels_draw_from_whole_blocks_behind_single_words(numbers_of_pytorch):
    F.manual_seed(3)
    F.rand(5)
    dropped = F.nn.functional.dropout(F.ones(1000), 0.5)
    assert 300 < int((dropped == 0).sum()) < 700
    assert F.rand(2).tolist() != F.rand(2).tolist()


def test_the_alias_draws_pytorchs_numbers():
    program = "import torch; torch.manual_seed(7); print(torch.rand(3).tolist())"
    done = subprocess.run(
        [sys.executable, "-m", "facula.torch", "-c", program], capture_output=True, text=True
    )
    assert eval(done.stdout) == pytest.approx([0.53492254, 0.198803186, 0.659211695]), done.stderr
    assert F.manual_seed(7) and F.rand(1).item() != pytest.approx(0.53492254)


ORDERS_OF_LOADERS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
for make in (lambda: list(range(10)), lambda: TensorDataset(torch.arange(10))):
    for seed in range(8):
        torch.manual_seed(seed)
        own = torch.Generator().manual_seed(seed)
        loaders = [DataLoader(make(), batch_size=4, shuffle=True, drop_last=d, generator=g)
                   for d in (False, True) for g in (None, own)]
        for loader in loaders:
            print([[batch[0] if type(batch) is list else batch for batch in loader] for _ in range(3)])
        print(torch.rand(1).item(), torch.rand(1, generator=own).item())
"""


@pytest.mark.skipif(not PEER.exists(), reason="PyTorch is not installed: FACULA_PEER")
def test_loaders_behind_the_alias_shuffle_as_pytorch_does():
    """A half of all seeds shows whether a seed is drawn from 63 bits or from the numbers below 2**63 - 1."""
    printed = []
    for command in ([str(PEER)], [sys.executable, "-m", "facula.torch"]):
        done = subprocess.run([*command, "-c", ORDERS_OF_LOADERS], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1]


DRAWS = [
    "F.rand(5)",
    "F.rand(3, dtype=F.float64)",
    "F.randn(40)",
    "F.randn(5, dtype=F.complex64)",
    "F.randint(3, 90, (7,))",
    "F.randperm(9)",
    "F.rand_like(F.zeros(2, 3))",
    "F.zeros(20).normal_(1, 2)",
    "F.zeros(4, dtype=F.bfloat16).uniform_(-1, 1)",
    "F.bernoulli(F.full((6,), 0.5))",
    "F.zeros(6).exponential_()",
    "F.dropout(F.ones(50), 0.3, True)",
    "F.randn(3, generator=generator)",
]


@pytest.mark.parametrize("draw", DRAWS)
def test_compiled_functions_draw_pytorchs_numbers(draw, numbers_of_pytorch):
    generator = F.Generator()
    f = eval(f"lambda x: {draw} + x", {"F": F, "generator": generator})
    compiled = F.compile(f)

    def three(g):
        F.manual_seed(7)
        generator.manual_seed(3)
        return [g(F.zeros(())).tolist() for _ in range(3)] + [F.rand(2).tolist()]

    want = three(f)
    assert three(compiled) == want == three(compiled)
    assert len({str(x) for x in want}) == 4
