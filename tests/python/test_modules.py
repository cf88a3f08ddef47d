"""Every module against what PyTorch's shows and computes for the same parameters and arguments
(tests/golden/modules.jsonl.gz, by tests/golden/record_modules.py)."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from support import recording
from support.modules import CASES, results

import facula

GOLDEN = {}
for line in recording.read("modules.jsonl").splitlines():
    row = json.loads(line)
    GOLDEN[row.pop("module")] = row


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("constructor, arguments", CASES, ids=[c for c, _ in CASES])
def test_a_module_shows_and_computes_what_pytorch_does(constructor, arguments):
    ours, theirs = results(facula, constructor, arguments), GOLDEN[constructor]
    assert ours["repr"] == theirs["repr"].replace("torch.", "facula.")
    assert ours["state"] == theirs["state"]
    assert ours.keys() == theirs.keys()
    for what in ours.keys() - {"repr", "state"}:
        compare(what, ours[what], theirs[what])


def compare(what, ours, theirs):
    if isinstance(theirs, list):
        assert len(ours) == len(theirs), what
        if all(isinstance(x, (int, float)) for x in theirs):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8, err_msg=what)
        else:
            for a, b in zip(ours, theirs):
                compare(what, a, b)
    else:
        assert ours == theirs, what


# ---- names and orders

sys.path.insert(0, str(Path(__file__).parent.parent / "golden"))
from record_module_orders import run  # noqa: E402

ORDERS = recording.read("module_orders.jsonl").splitlines()


@pytest.mark.parametrize("line", ORDERS, ids=lambda line: json.loads(line)["start"])
def test_members_keep_pytorchs_order_through_any_assignments(line):
    row = json.loads(line)
    steps, last = run(row["start"], row["statements"], {"torch": facula, "nn": facula.nn})
    for statement, ours, theirs in zip(row["statements"], steps, row["steps"]):
        assert list(ours) == theirs, f"after {statement!r} of {row['statements']}"
    assert last == row["held"]


# ---- dropout of channels


@pytest.mark.parametrize("rank", range(7))
@pytest.mark.parametrize(
    "name, channel_dims",
    [
        ("dropout", {n: n for n in range(7)}),
        ("dropout1d", {2: 1, 3: 2}),
        ("dropout2d", {n: 2 for n in range(2, 7)}),
        ("dropout3d", {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 1}),
        ("alpha_dropout", {n: n for n in range(7)}),
        ("feature_alpha_dropout", {n: 2 for n in range(2, 7)}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_dropout_drops_what_pytorch_takes_for_a_channel(name, channel_dims, rank):
    """Measured in PyTorch 2.13: the leading dimensions along which a mask varies, for inputs of each rank."""
    f, x = getattr(facula.nn.functional, name), facula.ones([5, 4, 3, 4, 2, 3][:rank])
    if rank not in channel_dims:
        with pytest.raises(RuntimeError, match="dimension|Expected 2D or 3D input"):
            f(x, 0.5, True)
    else:
        facula.manual_seed(3)
        y, n = f(x, 0.5, True), channel_dims[rank]
        first = y[(slice(None),) * n + (slice(0, 1),) * (rank - n)]
        assert facula.equal(y, first.expand_as(y))
        assert rank == 0 or len(set(first.reshape(-1).tolist())) == 2
        facula.manual_seed(3)
        z = x.clone()
        assert f(z, 0.5, True, True) is z and facula.equal(z, y)
    if name != "dropout1d" or rank in channel_dims:
        assert facula.equal(f(x, 0.0, True), x) and facula.equal(f(x, 0.5, False), x)
        nan = f(x * float("nan"), 1.0, True)
        assert nan.isnan().all() and facula.equal(f(x, 1.0, True), x * 0)


@pytest.mark.parametrize(
    "name, rank, text",
    [
        ("dropout1d", 2, None),
        ("dropout2d", 2, "Received a 2-D input"),
        ("dropout2d", 3, "Received a 3D input"),
        ("dropout2d", 4, None),
        ("dropout2d", 5, "Received a 5-D input"),
        ("dropout3d", 3, "Received a 3-D input"),
        ("dropout3d", 4, None),
        ("dropout3d", 5, None),
        ("dropout3d", 6, "Received a 6-D input"),
    ],
)
def test_dropout_warns_of_the_ranks_that_pytorch_warns_of(name, rank, text):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        getattr(facula.nn.functional, name)(facula.ones([2] * rank), 0.5)
    assert [text in str(w.message) for w in seen] == ([] if text is None else [True])


# ---- embedding


@pytest.mark.parametrize("indices", [[1, 2, 1, 4, 1], [[0, 0], [1, 3]], 2, []])
@pytest.mark.parametrize("padding", [None, 1, -5])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_the_gradient_of_an_embedding_is_a_sum_or_mean_over_occurrences(indices, padding, by_frequency):
    weight = (facula.arange(15.0).reshape(5, 3) + 0.5).requires_grad_()
    index = facula.tensor(indices, dtype=facula.int64)
    y = facula.nn.functional.embedding(index, weight, padding, scale_grad_by_freq=by_frequency)
    g = np.arange(y.numel(), dtype=np.float32).reshape(tuple(y.shape)) + 1
    y.backward(facula.from_numpy(g))
    want, flat = np.zeros((5, 3), np.float32), np.asarray(indices, np.int64).reshape(-1)
    for row, part in zip(flat, g.reshape(-1, 3)):
        if padding is None or row != padding % 5:
            want[row] += part / ((flat == row).sum() if by_frequency else 1)
    np.testing.assert_allclose(weight.grad.numpy(), want, rtol=1e-6)
    np.testing.assert_array_equal(y.detach().numpy(), weight.detach().numpy()[np.asarray(indices, np.int64)])


def test_second_derivatives_of_an_embedding_leave_padding_out():
    w = facula.randn(5, 3, dtype=facula.float64, requires_grad=True)
    i = facula.tensor([1, 2, 1, 4, 1])
    for options in ({}, {"padding_idx": 1}, {"scale_grad_by_freq": True, "padding_idx": 4}):
        f = lambda w: facula.nn.functional.embedding(i, w, **options).sin()  # noqa: E731, B023
        if "padding_idx" not in options:  # whose gradient is not the function's
            assert facula.autograd.gradgradcheck(f, (w,))
        c = facula.randn(5, 3, dtype=facula.float64, requires_grad=True)
        (g,) = facula.autograd.grad(facula.nn.functional.embedding(i, w, **options), w, c, create_graph=True)
        (back,) = facula.autograd.grad(g.sum(), c)
        counts = {1: 3, 2: 1, 4: 1}
        for k, row in zip(i.tolist(), back.tolist()):
            share = 1 / counts[k] if "scale_grad_by_freq" in options else 1
            assert row == [0 if k == options.get("padding_idx") else share] * 3


@pytest.mark.parametrize(
    "norm, want",
    [
        (2.0, [4.5, 3.40845, 3.44375, 31.5, 3.45778]),
        (1.0, [4.5, 2, 2, 31.5, 2]),
        (float("inf"), [4.5, 4.90909, 5.29412, 31.5, 5.58621]),
    ],
)
def test_an_embedding_limits_the_norms_of_the_rows_that_it_uses(norm, want):
    weight = (facula.arange(15.0).reshape(5, 3) + 0.5).requires_grad_()
    y = facula.nn.functional.embedding(facula.tensor([1, 2, 1, 4, 1]), weight, max_norm=2.0, norm_type=norm)
    np.testing.assert_allclose(weight.detach().sum(1).numpy(), want, rtol=1e-5)
    np.testing.assert_array_equal(y.detach().numpy(), weight.detach().numpy()[[1, 2, 1, 4, 1]])


def test_parametrized_modules_do_what_pytorchs_do():
    golden = Path(__file__).parents[1] / "golden"
    program = [sys.executable, "-m", "facula.torch", str(golden / "record_parametrizations.py")]
    said = subprocess.run(program, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == (golden / "parametrizations.txt").read_text().splitlines()


# Counters of operations and visualisers replace functions of nn.functional while a network runs.
@pytest.mark.parametrize(
    ("constructor", "function", "sizes"),
    [
        ("ReLU()", "relu", (4,)),
        ("ReLU(inplace=True)", "relu", (4,)),
        ("SiLU()", "silu", (4,)),
        ("AvgPool1d(2)", "avg_pool1d", (1, 4)),
        ("AvgPool2d(2)", "avg_pool2d", (1, 4, 4)),
        ("AvgPool3d(2)", "avg_pool3d", (1, 4, 4, 4)),
        ("MaxPool1d(2)", "max_pool1d", (1, 4)),
        ("MaxPool2d(2)", "max_pool2d", (1, 4, 4)),
        ("MaxPool3d(2)", "max_pool3d", (1, 4, 4, 4)),
        ("FractionalMaxPool2d(2, output_size=2)", "fractional_max_pool2d", (1, 4, 4)),
        ("AdaptiveAvgPool2d(2)", "adaptive_avg_pool2d", (1, 4, 4)),
        ("LPPool2d(2, 2)", "lp_pool2d", (1, 1, 4, 4)),
        ("Conv2d(1, 1, 3, padding=1, padding_mode='circular')", "pad", (1, 4, 4)),
        ("BatchNorm1d(4)", "batch_norm", (2, 4)),
        ("Linear(4, 2)", "linear", (4,)),
        ("Softmax(0)", "softmax", (4,)),
        ("AdaptiveLogSoftmaxWithLoss(4, 5, [2]).log_prob", "log_softmax", (1, 4)),
        ("MaxUnpool1d(2)", "max_unpool1d", None),
    ],
)
def test_a_module_calls_the_function_that_its_name_has_at_that_time(
    monkeypatch, constructor, function, sizes
):
    module = eval("facula.nn." + constructor)
    original, calls = getattr(facula.nn.functional, function), []
    monkeypatch.setattr(
        facula.nn.functional, function, lambda *a, **k: calls.append(function) or original(*a, **k)
    )
    arguments = [facula.ones(1, 2), facula.tensor([[1, 2]])] if sizes is None else [facula.ones(sizes)]
    module(*arguments)
    assert calls
