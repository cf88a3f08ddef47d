"""Functions of images, volumes and sequences against what PyTorch gives (tests/golden/spatial.jsonl.gz, by
tests/golden/record_spatial.py).
"""

import json
import math

import numpy as np
import pytest
from support import recording
from support.spatial import CASES, byte_images, interpolated_bytes, results

import facula

BYTES = list(byte_images())
F, rnn = facula.nn.functional, facula.nn.utils.rnn
GOLDEN = {}
for line in recording.read("spatial.jsonl").splitlines():
    row = json.loads(line)
    GOLDEN[row.pop("case")] = row


@pytest.mark.filterwarnings("ignore:Since version")
@pytest.mark.parametrize("name, f, shapes", CASES, ids=[c[0] for c in CASES])
def test_values_and_gradients_are_pytorchs(name, f, shapes):
    ours, theirs = results(facula, f, shapes), GOLDEN[name]
    assert [r[0] for r in ours["results"]] == [r[0] for r in theirs["results"]]
    for a, b in zip(ours["results"], theirs["results"]):
        np.testing.assert_allclose(a[1], b[1], rtol=1e-8, atol=1e-8)
    for a, b in zip(ours["gradients"], theirs["gradients"]):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [3, 7, 12])
def test_bytes_are_interpolated_to_the_nearest_byte(mode, size):
    """PyTorch computes with weights of 16 bits: it may be 1 off the exact result, as floats of bytes
    are not.
    """
    x = ((facula.arange(40) * 37) % 256).to(facula.uint8).reshape(1, 2, 5, 4)
    y = F.interpolate(x, size=size, mode=mode)
    rows = F.interpolate(x.double(), size=(5, size), mode=mode).round().clamp(0, 255)
    exact = F.interpolate(rows, size=size, mode=mode).round().clamp(0, 255)
    assert y.dtype == facula.uint8
    assert (y.double() - exact).abs().max() <= 1


@pytest.mark.parametrize("name, settings, shape", BYTES, ids=[c[0] for c in BYTES])
def test_bytes_are_interpolated_as_pytorch_rounds_them(name, settings, shape):
    assert interpolated_bytes(facula, settings, shape) == GOLDEN[name]["bytes"]


@pytest.mark.parametrize("name", ["conv3d", "conv_transpose3d"])
@pytest.mark.parametrize("dtype, eps", [("float16", 2**-10), ("bfloat16", 2**-7), ("complex64", 2**-23)])
def test_sums_over_planes_are_rounded_once(name, dtype, eps):
    """Value and gradients: a sum over the depth of the kernel and of the image is one sum."""
    rng = np.random.default_rng(0)
    f, dtype = getattr(F, name), getattr(facula, dtype)
    wide = facula.complex128 if dtype.is_complex else facula.float64

    def random(*shape):
        x = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype.is_complex else 0)
        return facula.tensor(x).to(dtype)

    given = [random(1, 2, 9, 8, 7), random(2, 2, 5, 3, 3)]
    answers = []
    for t in (dtype, wide):
        leaves = [x.detach().to(t).requires_grad_() for x in given]
        y = f(*leaves)
        y.backward(facula.ones_like(y))
        answers.append([y.detach(), *(x.grad for x in leaves)])
    for ours, exact in zip(*answers):
        assert ours.dtype == dtype
        error = (ours.to(wide) - exact).abs()
        assert (error <= eps * exact.abs() + (1e-6 if dtype.is_complex else 1e-9)).all()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_what_undoes_a_pool_names_itself(rank):
    f = getattr(F, f"max_unpool{rank}d")
    x, at = facula.zeros(1, 1, *[2] * rank), facula.zeros(1, 1, *[3] * rank, dtype=facula.int64)
    with pytest.raises(RuntimeError, match=rf"max_unpool{rank}d.*\[1, 1{', 2' * rank}\]"):
        f(x, at, 2)


def test_gradients_of_places_among_cubic_weights_are_those_of_float64():
    random = np.random.default_rng(3)
    image, seed = random.uniform(-9, 9, (2, 3, 5, 20)), random.uniform(-9, 9, (2, 3, 13, 10))
    grid = random.uniform(-1.2, 1.2, (2, 13, 10, 2))
    found = []
    for dtype in (facula.float32, facula.float64):
        x, at, g = (facula.from_numpy(a).float().to(dtype) for a in (image, grid, seed))
        y = F.grid_sample(x, at.requires_grad_(), "bicubic", "zeros", True)
        found.append(facula.autograd.grad(y, at, g)[0].double().numpy())
    np.testing.assert_allclose(*found, rtol=3e-7, atol=3e-7 * np.abs(found[1]).max())


def test_grids_may_point_nowhere():
    inf = float("inf")
    x = facula.arange(9.0).reshape(1, 1, 3, 3)
    grid = facula.tensor([[[[0.0, 0.0], [inf, 0.0], [float("nan"), 0.0], [1e20, 0.5]]]])
    assert F.grid_sample(x, grid, "nearest", "zeros", False).reshape(-1).tolist() == [4.0, 0.0, 0.0, 0.0]
    assert F.grid_sample(x, grid[:, :, :2], "nearest", "border", False).reshape(-1).tolist() == [4.0, 5.0]
    grid.requires_grad_()
    F.grid_sample(x, grid, "nearest", "zeros", False).sum().backward()
    assert grid.grad.count_nonzero() == 0 and grid.grad.shape == grid.shape  # zeros, and there


@pytest.mark.parametrize(
    "error, call",
    [
        (ValueError, lambda x: F.interpolate(x)),
        (ValueError, lambda x: F.interpolate(x, 3, 2.0)),
        (ValueError, lambda x: F.interpolate(x, (3, 3, 3))),
        (ValueError, lambda x: F.interpolate(x, scale_factor=(2, 2, 2))),
        (ValueError, lambda x: F.interpolate(x, 3, align_corners=True)),
        (ValueError, lambda x: F.interpolate(x, 3, mode="area", antialias=True)),
        (ValueError, lambda x: F.interpolate(x, 3, recompute_scale_factor=True)),
        (NotImplementedError, lambda x: F.interpolate(x, 3, mode="linear")),
        (NotImplementedError, lambda x: F.interpolate(x, 3, mode="fine")),
        (RuntimeError, lambda x: F.interpolate(x, 0, mode="bilinear")),
        (RuntimeError, lambda x: F.interpolate(x, scale_factor=0.1)),
        (RuntimeError, lambda x: F.unfold(x, 0)),
        (RuntimeError, lambda x: F.unfold(x, 7)),
        (RuntimeError, lambda x: F.unfold(x, 2, stride=0)),
        (RuntimeError, lambda x: F.unfold(x, 2, padding=-1)),
        (RuntimeError, lambda x: F.unfold(x, (2, 2, 2))),
        (RuntimeError, lambda x: F.fold(x[0, 0], 4, 2)),
        (RuntimeError, lambda x: F.conv3d(x, facula.ones(1, 2, 2, 2))),
        (RuntimeError, lambda x: F.conv3d(x, facula.ones(1, 3, 2, 2, 2))),
        (RuntimeError, lambda x: F.conv3d(x, facula.ones(1, 1, 5, 2, 2))),
        (RuntimeError, lambda x: F.conv_transpose3d(x, facula.ones(1, 1, 2, 2, 2), output_padding=1)),
        (RuntimeError, lambda x: F.max_pool3d(x, 2, padding=2)),
        (RuntimeError, lambda x: F.avg_pool3d(x, 5)),
        (RuntimeError, lambda x: F.avg_pool3d(x[0, 0], 2)),
        (ValueError, lambda x: F.grid_sample(x, x, mode="cubic")),
        (RuntimeError, lambda x: F.grid_sample(x, facula.ones(2, 2, 2, 2), align_corners=False)),
        (RuntimeError, lambda x: rnn.pack_padded_sequence(x[0], [1, 2])),
        (RuntimeError, lambda x: rnn.pack_padded_sequence(x[0], [4, 0])),
        (ValueError, lambda x: facula.nn.LSTM(4, 5)(x)),
        (RuntimeError, lambda x: facula.nn.LSTM(3, 5)(x[0])),
        (ValueError, lambda x: facula.nn.GRU(3, 5, proj_size=2)),
        (TypeError, lambda x: facula.nn.GRU(3.0, 5)),
    ],
)
def test_calls_that_pytorch_refuses_raise_its_error(error, call):
    with pytest.raises(error):
        call(facula.arange(32.0).reshape(1, 2, 4, 4))


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_seed_gives_a_recurrent_layer_the_same_parameters_in_the_order_of_names(name):
    facula.manual_seed(0)
    m = getattr(facula.nn, name)(3, 4, 2, bidirectional=True)
    facula.manual_seed(0)
    for p in m.parameters():
        assert facula.equal(p, facula.empty(p.shape).uniform_(-0.5, 0.5))
    assert len(m.all_weights) == 4 and m.all_weights[0][0] is m.weight_ih_l0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_of_infinite_order_take_the_extreme_magnitude(n):
    x = facula.tensor([[1.0, 2.0, 3.0, -4.0]]).reshape(1, 1, *[1] * (n - 1), 4).requires_grad_()
    pool = getattr(F, f"lp_pool{n}d")
    kernel = 2 if n == 1 else [*[1] * (n - 1), 2]
    y = pool(x, float("inf"), kernel)
    y.sum().backward()
    assert y.flatten().tolist() == [2.0, 4.0] and x.grad.flatten().tolist() == [0.0, 1.0, 0.0, -1.0]
    assert pool(x, -float("inf"), kernel).flatten().tolist() == [1.0, 3.0]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools_of_other_orders_at_the_ends_of_their_dtype(n):
    pool = getattr(F, f"lp_pool{n}d")
    shape, kernel = (1, 1, *[1] * (n - 1), 2), 2 if n == 1 else [*[1] * (n - 1), 2]
    with pytest.raises(ZeroDivisionError, match=f"lp_pool{n}d: norm_type"):
        pool(facula.ones(shape), 0, kernel)
    small = facula.tensor([2.0**-24, 2.0**-24], dtype=facula.float16).reshape(shape).requires_grad_()
    pool(small, 2, kernel).sum().backward()  # squares in float32
    assert small.grad.flatten().tolist() == pytest.approx([math.sqrt(0.5)] * 2, rel=1e-3)
    assert pool(facula.tensor([3.0, 2.0]).reshape(shape), 1e300, kernel).item() == 3.0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_adaptive_pools_to_no_windows_are_empty(n):
    x = facula.ones(2, 3, *[4] * n, requires_grad=True)
    size = [2] * (n - 1) + [0]
    y = getattr(F, f"adaptive_avg_pool{n}d")(x, size)
    best, at = getattr(F, f"adaptive_max_pool{n}d")(x, size, return_indices=True)
    assert y.shape == best.shape == at.shape == (2, 3, *size) and at.dtype == facula.int64
    (y.sum() + best.sum()).backward()
    assert not x.grad.any()


@pytest.mark.parametrize("name", ["max_pool1d", "avg_pool1d"])
def test_pools_of_lines_take_one_number_a_setting(name):
    with pytest.raises(RuntimeError, match="'kernel_size' should contain one int"):
        getattr(F, name)(facula.ones(1, 1, 9), [2, 2])
