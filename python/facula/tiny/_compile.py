"""Networks as C: the programs, their memory, and the budgets."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _C, c, nn
from ..program import trace
from ._network import Network, Update
from ._picture import picture
from ._quantize import quantize
from ._store import store

Tensor = _C.Tensor
# Bytes of the stack that a program and an interrupt need. Kernels have no recursion and no arrays of unknown
# size; `make tiny` measures 0.4 KB on a Cortex-M7.
STACK = 2048


class MemoryExceeded(MemoryError):
    """The programs need more memory than the board has."""


@dataclass(frozen=True)
class Report:
    """A network as C: its programs and their memory, in bytes."""

    network: Network
    update: Update
    code: c.Report
    stack: int = STACK

    @property
    def ram(self) -> int:
        """The arena, which contains the input, the trained parameters, and the stack."""
        return self.code.arena + self.code.writable + self.stack

    @property
    def flash(self) -> int:
        """The parameters, among them the initial values of trained ones. Code comes in addition."""
        return self.code.constant + self.code.writable

    def peak(self, entry: str | None = None) -> tuple[str, int, list[c.Block]]:
        """The function and step at which most memory is in use, and the tensors there, the largest first."""
        best: tuple[str, int, list[c.Block]] = ("", 0, [])
        for name in {b.entry for b in self.code.blocks}:
            if entry not in (None, name):
                continue
            blocks = [b for b in self.code.blocks if b.entry == name]
            for step in range(1 + max(b.last for b in blocks)):
                live = [b for b in blocks if b.first <= step <= b.last]
                if sum(b.bytes for b in live) > sum(b.bytes for b in best[2]):
                    best = name, step, sorted(live, key=lambda b: -b.bytes)
        return best

    def __str__(self) -> str:
        return "\n".join(
            [
                *self.code.functions,
                f"RAM {self.ram:,} bytes: arena {self.code.arena:,}, "
                f"trained parameters {self.code.writable:,}, stack {self.stack:,}",
                f"flash {self.flash:,} bytes of parameters, and the code",
            ]
        )

    def save(self, path: str | os.PathLike[str], entry: str = "train") -> None:
        """Writes a picture of the arena during the steps of a function, as SVG."""
        blocks = [b for b in self.code.blocks if b.entry == entry]
        title = f"{entry}: arena {self.code.arena:,} bytes"
        Path(path).write_text(picture(blocks, self.code.arena, title), encoding="utf-8")

    def largest(self, count: int = 5) -> str:
        """The largest tensors at the peak, a line each."""
        name, step, blocks = self.peak()
        lines = [f"  {b.bytes:>9,}  {b.name}" for b in blocks[:count]]
        return "\n".join([f"the largest tensors at the peak, step {step} of {name}:", *lines])


def compile(
    model: nn.Module | Network,
    data: Iterable[Any],
    folder: str | os.PathLike[str] = "board",
    *,
    ram: int | None = None,
    flash: int | None = None,
    update: Update | None = None,
    name: str = "model",
    saves: bool = False,
    patches: int = 1,
    stochastic: bool = False,
) -> Report:
    """Writes inference and a training step of a model as C99 with 8-bit arithmetic.

    ``NAME_infer(logits)`` and ``NAME_train(label, rate, loss)`` read the image from the arena:
    ``NAME_infer_image`` and ``NAME_train_image``, int8, NHWC, quantised with the scale and zero point of
    ``Report.network.in_scale``. Both share their parameters. The learning rate is an argument. A label that
    is no class, or a rate that is not finite, gives status 1 and changes no parameter.

    Args:
        model: a trained model, or a network of :func:`facula.tiny.quantize`.
        data: typical batches, which determine the scales of tensors.
        folder: where the C is written.
        ram: bytes of RAM for the arena, the trained parameters and the stack; None: no limit.
        flash: bytes of flash memory for parameters; None: no limit.
        update: what a step trains; None: the biases of all layers and the classifier.
        name: the prefix of all names in the code.
        patches: the first layers are computed in so many parts of rows, one after the other, which needs less
            RAM and some rows twice. Layers that are trained, and those behind them, are computed in one part.
        stochastic: round trained integers up or down at random, with the exact mean, so that changes of less
            than half a step are not lost. ``NAME_train`` then also takes the number of the step.
        saves: also write ``NAME_save()`` and ``NAME_load()``, for trained parameters in flash memory; the
            program supplies three functions that access it (``NAME_store.h``).

    Raises:
        NotImplementedError: for a layer without an 8-bit form, with the line that calls it.
        MemoryExceeded: if the programs exceed the memory, with the largest tensors at the peak.
    """
    network = model if isinstance(model, Network) else quantize(model, data)
    if update is None:
        update = Update(frozenset(n.name for n in network.convs))
    if patches < 1:
        raise ValueError(f"tiny.compile expects at least one patch, but patches={patches}")
    network, update = dataclasses.replace(network, patches=patches), network.chosen(update)
    report = Report(network, update, write(network, update, folder, name, stochastic=stochastic))
    if saves:
        header = (Path(folder) / f"{name}.h").read_text(encoding="utf-8")
        for file, text in store(name, header).items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
    for what, needed, limit in (("RAM", report.ram, ram), ("flash", report.flash, flash)):
        if limit is not None and needed > limit:
            advice = (
                "train fewer layers (update=...), compute the first ones by parts (patches=4), "
                "or use a smaller image"
                if what == "RAM"
                else "use a smaller model"
            )
            raise MemoryExceeded(
                f"{name} needs {needed:,} bytes of {what} and has {limit:,}; {advice}. {report.largest()}"
            )
    return report


def write(
    network: Network,
    update: Update,
    folder: str | os.PathLike[str],
    name: str = "model",
    *,
    tiled: bool = True,
    reorder: bool = True,
    stochastic: bool = False,
) -> c.Report:
    """Writes the programs of a network; ``tiled`` and ``reorder`` as in :func:`facula.c.compile`."""
    image = _C.functions.zeros(network.input_shape, dtype=_C.int8)
    label, rate = _C.functions.zeros((1,), dtype=_C.int64), _C.functions.zeros(())
    number = [_C.functions.zeros((), dtype=_C.int64)] if stochastic else []
    classes = network.classifier.bias.numel()
    where = _C.functions.where

    def train(image: Tensor, label: Tensor, rate: Tensor, number: Tensor | None = None) -> Tensor:
        # A label that is no class, or a rate that is not finite, gives an error and changes no parameter.
        valid = ((label >= 0) & (label < classes) & (rate.abs() < 1e30)).all()
        label, rate = where(valid, label, classes), where(valid, rate, 0.0)
        return network.step(image, label, rate, update, number=number)

    programs = {"train": trace(train, image, label, rate, *number), "infer": trace(network.logits, image)}
    return c.compile(
        programs,
        folder,
        name=name,
        weights=network.tensors(),
        arguments={"train": ["image", "label", "rate", "number"], "infer": ["image"]},
        in_arena={"train": [0], "infer": [0]},
        tiled=tiled,
        reorder=reorder,
        lines={n.name: _short(n.line) for n in network.layers},
    )


def _short(line: str) -> str:
    """The file and the number of a layer's line: "net.py:12"."""
    place = re.search(r"([^/\\\s(]+), line (\d+)", line)
    return f"{place[1]}:{place[2]}" if place else ""
