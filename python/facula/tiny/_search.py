"""The search for the layers to train: their contributions, and the best combination within a memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import _C
from ..program import trace
from ._network import Conv, Network, Update

Tensor = _C.Tensor
RATIOS = (0.125, 0.25, 0.5, 1.0)


def memory(network: Network, update: Update) -> int:
    """Bytes that training needs in addition to inference: for a layer with a trained bias one bit for each
    output, and the bias; for one with trained weights their input channels, and the weights.
    """
    return _memory_of(network)(update)


def _memory_of(network: Network) -> Callable[[Update], int]:
    """`memory` of one network, whose shapes are computed once."""
    shapes = network.shapes()

    def bits_of_bias(conv: Conv) -> int:
        _, h, w, c = shapes[conv.name]
        return h * w * c + 32 * conv.bias.numel()

    def bits_of_weights(conv: Conv, ratio: float) -> int:
        _, h, w, c = shapes[conv.source]
        channels = c if conv.groups > 1 else max(1, round(ratio * c))
        return 8 * (h * w * channels + conv.weight.numel() * channels // c)

    def bytes_of(update: Update) -> int:
        bits = sum(bits_of_bias(conv) for conv in network.convs if conv.name in update.bias)
        trained = ((conv, update.weights.get(conv.name, 0.0)) for conv in network.convs)
        bits += sum(bits_of_weights(conv, ratio) for conv, ratio in trained if ratio)
        return (bits + 7) // 8

    return bytes_of


def fit(
    network: Network,
    update: Update,
    data: tuple[Tensor, Tensor],
    rate: float,
    epochs: int,
    batch: int = 8,
    *,
    scaled: bool = True,
    stochastic: bool = False,
) -> None:
    """Trains a network in place on images of the model, or int8 ones, and their labels, in their order; the
    rate falls to 0. ``scaled``, ``stochastic``: with quantisation-aware scaling, with rounding at random.
    """
    images, labels = network.images(data[0]), data[1]
    update = network.chosen(update)

    def step(x: Tensor, y: Tensor, rate: Tensor, number: Tensor) -> Tensor:
        drawn = number if stochastic else None
        return network.step(x, y, rate, update, scaled=scaled, number=drawn)

    full, count = _C.functions.full, len(labels) // batch
    program = trace(step, images[:batch], labels[:batch], full((), rate), full((), 0, dtype=_C.int64))
    for k in range(epochs * count):
        at = k % count * batch
        now = full((), rate * (1 - k / (epochs * count)))
        program(images[at : at + batch], labels[at : at + batch], now, full((), k, dtype=_C.int64))


def accuracy(network: Network, data: tuple[Tensor, Tensor], batch: int = 64) -> float:
    """The part of the images whose label has the largest logit."""
    images, labels = network.images(data[0]), data[1]
    batch = min(batch, len(labels))
    program = trace(network.logits, images[:batch])
    right = 0
    for at in range(0, len(labels), batch):
        x, y = images[at : at + batch], labels[at : at + batch]
        logits = program(x) if len(y) == batch else network.logits(x)
        right += int((logits.argmax(1) == y).sum().item())
    return right / len(labels)


@dataclass
class Contributions:
    """Gains in accuracy: by the last k biases over the classifier alone, and by the weights of a layer, or a
    part of them, over the biases.
    """

    classifier: float
    bias: dict[int, float] = field(default_factory=dict)
    weights: dict[tuple[str, float], float] = field(default_factory=dict)

    def of_biases(self, count: int) -> float:
        """The gain of the last biases; between measured numbers that of the next smaller one."""
        return max((gain for k, gain in self.bias.items() if k <= count), default=0.0)

    def of(self, network: Network, update: Update) -> float:
        return self.of_biases(len(update.bias)) + sum(
            self.weights.get(item, 0.0) for item in update.weights.items()
        )


def contributions(
    network: Network,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    *,
    rate: float,
    epochs: int = 1,
    ratios: Sequence[float] = (0.5, 1.0),
    steps: int = 6,
    report: Callable[[str], Any] = lambda line: None,
) -> Contributions:
    """Measures contributions by short trainings: of `steps` numbers of biases, and of pointwise weights.
    ``train``, ``test``: images of the model, or int8 ones, and their labels.
    """
    names = [c.name for c in network.convs]
    train, test = ((network.images(images), labels) for images, labels in (train, test))

    def trained(update: Update) -> float:
        copy = network.copy()
        fit(copy, update, train, rate, epochs)
        result = accuracy(copy, test)
        report(f"{len(update.bias)} biases, weights {dict(update.weights)}: {result:.4f}")
        return result

    result = Contributions(trained(Update()))
    counts = sorted({max(1, round(len(names) * (k + 1) / steps)) for k in range(steps)})
    for count in counts:
        result.bias[count] = trained(Update(frozenset(names[-count:]))) - result.classifier
    most = max(result.bias, key=lambda k: result.bias[k])
    base = result.classifier + result.bias[most]
    for conv in network.convs[-most:]:
        for ratio in ratios if conv.groups == 1 else ():
            update = Update(frozenset(names[-most:]), {conv.name: ratio})
            result.weights[conv.name, ratio] = trained(update) - base
    return result


def evolve(
    network: Network,
    gains: Contributions,
    budget: int,
    *,
    population: int = 64,
    generations: int = 200,
    seed: int = 0,
) -> Update:
    """The update with the largest sum of contributions within a budget of bytes, by evolution: the better
    half of a population survives, and pairs of survivors have mutated children. At the end the best one is
    improved by changes of at most two of its genes until none of them is a gain (a memetic algorithm:
    Moscato, 1989).
    """
    needed_by = _memory_of(network)
    draw = random.Random(seed)
    names = [c.name for c in network.convs]
    choices = {name: [0.0, *(r for n, r in gains.weights if n == name)] for name, _ in gains.weights}
    Genes = tuple[int, dict[str, float]]

    def update_of(genes: Genes) -> Update:
        count, ratios = genes
        trained = names[len(names) - count :]
        return Update(frozenset(trained), {n: r for n, r in ratios.items() if r and n in trained})

    def fitness(genes: Genes) -> float:
        update = update_of(genes)
        needed = needed_by(update)
        return gains.of(network, update) if needed <= budget else -needed / budget

    def mutated(genes: Genes) -> Genes:
        count, ratios = genes[0], dict(genes[1])
        if draw.random() < 0.3:
            count = min(len(names), max(0, count + draw.randint(-3, 3)))
        for name in choices:
            if draw.random() < 1.5 / len(choices):
                ratios[name] = draw.choice(choices[name])
        return count, ratios

    def child(a: Genes, b: Genes) -> Genes:
        return mutated((draw.choice((a, b))[0], {n: draw.choice((a, b))[1].get(n, 0.0) for n in choices}))

    def neighbours(genes: Genes) -> Iterator[Genes]:
        """All that differ in one gene: the number of biases or the ratio of one layer."""
        count, ratios = genes
        yield from ((k, ratios) for k in (0, *gains.bias) if k != count)
        for name, ratio in ((n, r) for n, options in choices.items() for r in options):
            if ratios.get(name, 0.0) != ratio:
                yield count, {**ratios, name: ratio}

    def climbed(best: Genes) -> Genes:
        while True:
            near = list(neighbours(best))
            further = (pair for genes in near for pair in neighbours(genes))
            better = max((best, *near, *further), key=fitness)  # the first of equal ones
            if better is best:
                return best
            best = better

    everyone: list[Genes] = [mutated((draw.choice([0, *gains.bias]), {})) for _ in range(population - 1)]
    everyone.append((0, {}))  # the classifier alone always fits
    for _ in range(generations):
        everyone.sort(key=fitness, reverse=True)
        everyone = everyone[: population // 2]
        everyone += [child(*draw.sample(everyone, 2)) for _ in range(population - len(everyone))]
    return update_of(climbed(max(everyone, key=fitness)))
