"""A language model on the device: a character GPT, trained on prose here, is fine-tuned on typed text by
its C program
on aarch64 (qemu-user). The loss on the held-out part of that text falls by at least 15 %.

make mobile
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import facula.nn.functional as nf
from facula.program import trace

import facula as F
from facula import c

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards.programs import CharGpt
from boards.targets import targets

ROOT = Path(__file__).resolve().parents[2]
ALPHABET = "abcdefghijklmnopqrstuvwxyz .,-'\n"
PROSE = Path("/usr/share/common-licenses/GPL-3")  # of Debian's base system
TYPED = [ROOT / "docs" / name for name in ("compiler.md", "architecture.md", "layouts.md")]
LENGTH, BATCH = 16, 8
MUST = 0.15


def letters(text: str) -> list[int]:
    """The numbers of a text's letters in the alphabet; others become spaces."""
    known = (ALPHABET.find(x) for x in " ".join(text.lower().split()))
    return [n if n >= 0 else ALPHABET.index(" ") for n in known]


def pieces(ids: list[int], starts: list[int]) -> F.Tensor:
    return F.tensor([ids[s : s + LENGTH + 1] for s in starts])


def pretrain(model: CharGpt, ids: list[int], steps: int) -> None:
    optimizer = F.optim.AdamW(model.parameters(), lr=3e-3)

    def step(x: F.Tensor, y: F.Tensor) -> F.Tensor:
        optimizer.zero_grad()
        loss = nf.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    size = 32
    program = trace(step, pieces(ids, [0] * size)[:, :-1].clone(), pieces(ids, [0] * size)[:, 1:].clone())
    for _ in range(steps):
        p = pieces(ids, F.randint(0, len(ids) - LENGTH - 1, (size,)).tolist())
        program(p[:, :-1].contiguous(), p[:, 1:].contiguous())


def write(model: CharGpt, folder: Path) -> c.Report:
    """Writes the fine-tuning step and the loss on a batch as C."""
    optimizer = F.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss_of(x: F.Tensor, y: F.Tensor) -> F.Tensor:
        return nf.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def step(x: F.Tensor, y: F.Tensor) -> F.Tensor:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss

    x = F.zeros((BATCH, LENGTH), dtype=F.int64)
    with F.no_grad():
        test = trace(loss_of, x, x)
    programs = {"train": trace(step, x, x), "test": test}
    return c.compile(programs, folder, weights=model, arguments={"train": ["x", "y"], "test": ["x", "y"]})


def main_text(train: list[int], held: list[int], steps: int) -> str:
    """A program that prints the loss on the held-out text before and after the training."""
    arrays = "".join(
        f"static const unsigned char {name}[] = {{{', '.join(map(str, ids))}}};\n"
        for name, ids in (("typed", train), ("held", held))
    )
    return f"""#include <stdio.h>

#include "model.h"

{arrays}
static int64_t x[{BATCH * LENGTH}], y[{BATCH * LENGTH}];

static void take(const unsigned char* text, uint32_t at, uint32_t row) {{
  for (uint32_t k = 0; k < {LENGTH}; ++k) {{
    x[row * {LENGTH} + k] = text[at + k];
    y[row * {LENGTH} + k] = text[at + k + 1];
  }}
}}

static double held_loss(void) {{
  uint32_t batches = (uint32_t)(sizeof held - 1) / {BATCH * LENGTH};
  double sum = 0;
  for (uint32_t b = 0; b < batches; ++b) {{
    float loss;
    for (uint32_t row = 0; row < {BATCH}; ++row) take(held, (b * {BATCH} + row) * {LENGTH}, row);
    if (model_test(x, y, &loss)) return -1;
    sum += (double)loss;
  }}
  return sum / batches;
}}

int main(void) {{
  uint32_t state = 1;
  const double lr = 0.05;
  float loss;
  printf("%.17g\\n", held_loss());
  for (int step = 0; step < {steps}; ++step) {{
    for (uint32_t row = 0; row < {BATCH}; ++row) {{
      state = state * 1664525u + 1013904223u;
      take(typed, (state >> 8) % (uint32_t)(sizeof typed - {LENGTH + 1}), row);
    }}
    if (model_train(x, y, &lr, &loss)) return 1;
  }}
  printf("%.17g\\n", held_loss());
  return 0;
}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pretrain", type=int, default=2000, help="steps on this machine")
    parser.add_argument("--steps", type=int, default=400, help="steps on the device")
    parser.add_argument("--target", default="aarch64")
    options = parser.parse_args()
    seed = F.seed()
    model = CharGpt(len(ALPHABET), 32, LENGTH)
    pretrain(model, letters(PROSE.read_text(encoding="utf-8")), options.pretrain)
    typed = letters(" ".join(p.read_text(encoding="utf-8") for p in TYPED))
    cut = len(typed) * 4 // 5
    target = next(t for t in targets() if t.name == options.target)
    if tool := target.missing():
        print(f"{tool} is not installed")
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = write(model, folder)
        (folder / "main.c").write_text(main_text(typed[:cut], typed[cut:][:4097], options.steps))
        start = time.perf_counter()
        before, after = map(float, target.run(target.build(folder), timeout=1200).split())
    fall = 1 - after / before
    print(
        f"char GPT on {target.name}, {options.steps} steps on {cut:,} typed letters: held-out loss "
        f"{before:.3f} -> "
        f"{after:.3f} nats a letter, {100 * fall:.1f} % less (must be >= {100 * MUST:.0f} %); "
        f"arena {report.arena:,} bytes, weights {report.writable + report.constant:,} bytes; "
        f"{time.perf_counter() - start:.0f} s with compilation; seed {seed}"
    )
    return int(not fall >= MUST)


if __name__ == "__main__":
    sys.exit(main())
