"""Accuracy after training on the device, on three tasks of transfer: float32, int8 with and without scaling,
and sparse updates within one memory.

make tiny-accuracy
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import facula.nn.functional as nf
import numpy as np
from facula.program import trace
from facula.tiny import Update

import facula as F
from facula import nn, tiny

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards.limits import Limits
from boards.networks import Mobile

ROOT = Path(__file__).resolve().parents[2]
FASHION = Path("/usr/share/datasets/fashion-mnist")
Tensor = F.Tensor
Data = tuple[Tensor, Tensor]
BATCH = 8
STEPS = 400  # of each training
RATES = (0.03, 0.1, 0.3, 1.0)
BUDGET = 6 * 1024  # bytes that sparse updates may use
LOST = 1.5  # points that int8 with scaling may lose
SEARCH, ALL = 600, 1200  # seconds


def network() -> nn.Module:
    return Mobile(
        8, [(8, 3, 1, 8), (24, 3, 2, 16), (48, 5, 1, 16), (64, 3, 2, 24), (96, 3, 1, 24)], classes=5
    )


# ---- data: float images [N, 3, 32, 32] with values from -1 to 1, and labels from 0 to 4


def images(x: np.ndarray) -> Tensor:
    """Square gray images of any size as 32 x 32 in three equal channels; the largest value is white."""
    t = F.tensor(np.ascontiguousarray(x, dtype=np.float32)).unsqueeze(1)
    t = nf.interpolate(t, (32, 32), mode="bilinear", align_corners=False)
    return (t / float(t.max()) * 2 - 1).expand(-1, 3, -1, -1).contiguous()


def fashion(part: str, labels: range, count: int) -> Data:
    import gzip

    with gzip.open(FASHION / f"{part}-images-idx3-ubyte.gz") as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(FASHION / f"{part}-labels-idx1-ubyte.gz") as f:
        y = np.frombuffer(f.read(), np.uint8, offset=8)
    chosen = np.flatnonzero((y >= labels.start) & (y < labels.stop))[:count]
    return images(x[chosen]), F.tensor(y[chosen].astype(np.int64) - labels.start)


def divided(x: np.ndarray, y: np.ndarray, train: int, draw: np.random.Generator) -> tuple[Data, Data]:
    order = draw.permutation(len(x))
    x, y = images(x[order]), F.tensor(y[order].astype(np.int64))
    return (x[:train], y[:train]), (x[train:], y[train:])


def digits(draw: np.random.Generator) -> tuple[Data, Data]:
    """The digits 5 to 9 of scikit-learn, 8 x 8."""
    rows = np.loadtxt(ROOT / ".tinydata/sklearn/datasets/data/digits.csv.gz", delimiter=",")
    rows = rows[rows[:, -1] >= 5]
    return divided(rows[:, :-1].reshape(-1, 8, 8), rows[:, -1] - 5, 480, draw)


def faces(draw: np.random.Generator) -> tuple[Data, Data]:
    """Faces and other pictures of scikit-image, 25 x 25."""
    x = np.load(ROOT / ".tinydata/skimage/data/lfw_subset.npy")
    return divided(x, (np.arange(len(x)) < 100).astype(np.int64), 120, draw)


TASKS: dict[str, Callable[[np.random.Generator], tuple[Data, Data]]] = {
    "Fashion-MNIST 5-9": lambda draw: (
        fashion("train", range(5, 10), 960),
        fashion("t10k", range(5, 10), 2000),
    ),
    "digits 5-9": digits,
    "faces": faces,
}


# ---- training in float32


def float_accuracy(model: nn.Module, data: Data) -> float:
    model.eval()
    with F.no_grad():
        right = sum(
            int((model(x).argmax(1) == y).sum()) for x, y in zip(data[0].split(256), data[1].split(256))
        )
    return right / len(data[1])


def float_fit(model: nn.Module, data: Data, rate: float, epochs: int, batch: int, frozen: bool) -> None:
    """Trains all weights; `frozen`: after training, without momentum and statistics."""
    optimizer = F.optim.SGD(model.parameters(), lr=rate, momentum=0.0 if frozen else 0.9)
    model.train(not frozen)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nf.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    program = trace(step, data[0][:batch], data[1][:batch])
    count = len(data[1]) // batch
    for k in range(epochs * count):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - k / (epochs * count))
        at = k % count * batch
        program(data[0][at : at + batch], data[1][at : at + batch])


def pretrained(epochs: int) -> nn.Module:
    """A network for the first five classes of Fashion-MNIST."""
    model = network()
    float_fit(model, fashion("train", range(5), 30000), 0.05, epochs, 64, frozen=False)
    print(f"float32, classes 0-4: {float_accuracy(model, fashion('t10k', range(5), 5000)):.4f}", flush=True)
    return model


def folded(model: nn.Module) -> nn.Module:
    """The model with batch norms as a part of the convolutions, as in the 8-bit network."""
    copy = copied(model).eval()
    for m in list(copy.modules()):
        if not isinstance(m, nn.Sequential) or len(m) < 2 or not isinstance(m[1], nn.BatchNorm2d):
            continue
        conv, bn = m[0], m[1]
        with F.no_grad():
            factor = bn.weight * (bn.running_var + bn.eps).rsqrt()
            conv.weight.mul_(factor.reshape(-1, 1, 1, 1))
            conv.bias = nn.Parameter(bn.bias - bn.running_mean * factor)
        m[1] = nn.Identity()
    return copy


def copied(model: nn.Module) -> nn.Module:
    copy = network()
    copy.load_state_dict(model.state_dict())
    return copy


# ---- training in int8


def bytes_of(net: tiny.Network, data: Data) -> Data:
    return net.images(data[0]), data[1]


def best(rates: tuple[float, ...], run: Callable[[float], float]) -> float:
    """The accuracy with the best of some learning rates."""
    return max(run(rate) for rate in rates)


def int8(
    net: tiny.Network, update: Update, train: Data, test: Data, epochs: int, scaled: bool = True
) -> float:
    def run(rate: float) -> float:
        copy = net.copy()
        tiny.fit(copy, update, train, rate, epochs, BATCH, scaled=scaled)
        return tiny.accuracy(copy, test)

    return best(RATES if scaled else (*RATES, 3.0, 10.0), run)


def last_layers(net: tiny.Network, budget: int) -> Update:
    """Biases and weights of as many last layers as fit."""
    names, update = [c.name for c in net.convs], Update()
    for k in range(1, len(names) + 1):
        more = Update(frozenset(names[-k:]), {n: 1 for n in names[-k:]})
        if tiny.memory(net, more) > budget:
            break
        update = more
    return update


def biases(net: tiny.Network, budget: int) -> Update:
    names = [c.name for c in net.convs]
    fitting = [
        k
        for k in range(len(names) + 1)
        if tiny.memory(net, Update(frozenset(names[len(names) - k :]))) <= budget
    ]
    return Update(frozenset(names[len(names) - fitting[-1] :]))


def row(name: str, model: nn.Module, draw: np.random.Generator, limits: Limits) -> list[float]:
    train, test = TASKS[name](draw)
    model = copied(model)
    with F.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()

    def in_float(rate: float) -> float:
        copy = folded(model)
        float_fit(copy, train, rate, epochs, BATCH, frozen=True)
        return float_accuracy(copy, test)

    net = tiny.quantize(model, [train[0][:64]])
    small, large = bytes_of(net, train), bytes_of(net, test)
    names = frozenset(c.name for c in net.convs)
    full = Update(names, {n: 1 for n in names})
    epochs = max(1, STEPS * BATCH // len(train[1]))
    numbers = [best(RATES, in_float), int8(net, full, small, large, epochs, scaled=False)]
    numbers.append(int8(net, full, small, large, epochs))
    start = time.monotonic()
    part = len(small[1]) * 3 // 4  # the search sees the training images alone
    gains = tiny.contributions(
        net,
        (small[0][:part], small[1][:part]),
        (small[0][part:], small[1][part:]),
        rate=0.3,
        epochs=max(1, epochs // 3),
    )
    found = tiny.evolve(net, gains, BUDGET)
    limits.most(f"{name}: seconds of the search", time.monotonic() - start, SEARCH)
    print(f"found: {len(found.bias)} biases, {dict(found.weights)}", flush=True)
    for update in (found, biases(net, BUDGET), last_layers(net, BUDGET)):
        numbers.append(int8(net, update, small, large, epochs))
    line = " | ".join(f"{100 * n:.2f}" for n in numbers)
    print(f"| {name} | {line} |", flush=True)
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pretrain", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    F.manual_seed(options.seed)
    F.set_num_threads(1)  # the networks are small
    start = time.monotonic()
    model = pretrained(options.pretrain)
    columns = ["float32", "int8", "int8 scaled", f"found, {BUDGET:,} bytes", "biases", "last layers"]
    print("| task | " + " | ".join(columns) + " |\n" + "|---" * 7 + "|")
    limits = Limits()
    rows = [row(name, model, np.random.default_rng(options.seed), limits) for name in TASKS]
    mean = 100 * np.mean(rows, axis=0)
    print("| mean | " + " | ".join(f"{n:.2f}" for n in mean) + " |\n")
    limits.most("mean: points of float32 over int8 scaled", float(mean[0] - mean[2]), LOST)
    for name, other in zip(columns[4:], mean[4:]):
        limits.above(f"mean: points of the found update over {name}", float(mean[3] - other), 0)
    limits.most("seconds in all", time.monotonic() - start, ALL)
    print(limits.table())
    return int(limits.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
