"""Programs for every target: models and training steps, as folders of C with a main function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import facula.nn.functional as nf
from facula.program import Program, trace

import facula as F
from facula import c, nn

Tensor = F.Tensor


@dataclass
class Case:
    """A program with inputs: what main() runs `steps` times and prints."""

    program: Program
    inputs: tuple[Tensor, ...]
    weights: nn.Module
    steps: int = 1


class CharGpt(nn.Module):
    """A character-level transformer of two blocks."""

    def __init__(self, vocabulary: int = 32, width: int = 32, length: int = 16) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))
        self.register_buffer("places", F.arange(length))

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.positions(self.places)
        for block in self.blocks:
            h = block(h, src_mask=self.mask)
        return self.head(self.norm(h))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, groups=8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def inference(make: Callable[[], nn.Module], x: Tensor) -> Case:
    net = make().eval()
    return Case(trace(net, x), (x,), net)


def training(make: Callable[[], nn.Module], x: Tensor, steps: int) -> Case:
    net = make()
    optimizer = F.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    labels = F.randint(0, 10, (x.size(0),))

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nf.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return Case(trace(step, x, labels), (x, labels), net, steps)


CASES: dict[str, Callable[[], Case]] = {
    "mlp": lambda: inference(mlp, F.randn(2, 64)),
    "cnn": lambda: inference(cnn, F.randn(1, 1, 16, 16)),
    "char-gpt": lambda: inference(CharGpt, F.randint(0, 32, (1, 16))),
    "mlp-training": lambda: training(mlp, F.randn(4, 64), 100),
    "cnn-training": lambda: training(cnn, F.randn(2, 1, 8, 8), 100),
}


def write(case: Case, folder: Path) -> c.Report:
    """Writes the program and a main() that prints the bytes of the results of every call, in hexadecimal."""
    report = c.compile(case.program, folder, weights=case.weights)
    results = case.program(*case.inputs) if case.steps == 1 else F.zeros(())
    (folder / "main.c").write_text(main_text(case, results if isinstance(results, tuple) else (results,)))
    return report


def main_text(case: Case, results: tuple[Tensor, ...]) -> str:
    inputs, names = "", []
    for k, x in enumerate(case.inputs):
        kind = "float" if x.dtype == F.float32 else "int64_t"
        values = [v.hex() + "f" if kind == "float" else str(v) for v in x.flatten().tolist()]
        inputs += f"static const {kind} x{k}[] = {{{', '.join(values)}}};\n"
        names.append(f"x{k}")
    for k, r in enumerate(results):
        inputs += f"static float y{k}[{r.numel()}];\n"
        names.append(f"y{k}")
    shown = "\n".join(f"    show((const unsigned char*)y{k}, sizeof y{k});" for k in range(len(results)))
    return f"""#include <stdio.h>

#include "model.h"

{inputs}
static void show(const unsigned char* bytes, unsigned long count) {{
  for (unsigned long i = 0; i < count; ++i) printf("%02x", bytes[i]);
  printf("\\n");
}}

int main(void) {{
  for (int step = 0; step < {case.steps}; ++step) {{
    if (model_run({", ".join(names)})) return 1;
{shown}
  }}
  return 0;
}}
"""
