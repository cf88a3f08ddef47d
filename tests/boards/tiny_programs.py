"""A network of `facula.tiny` on boards: a main function that trains, and prints bits and measurements."""

from __future__ import annotations

from pathlib import Path

from facula import tiny

HERE = Path(__file__).resolve().parent
TICK = 40  # instructions
MAIN = """#include <stdio.h>
#include <string.h>

#include "measure.h"
#include "model.h"

/* Pseudo-random bytes: the same image each time. */
static void fill(int8_t* image) {
  uint32_t state = 12345;
  for (int i = 0; i < BYTES; ++i) {
    state = state * 1664525u + 1013904223u;
    image[i] = (int8_t)(uint8_t)(state >> 24);
  }
}

static void show(const char* name, const float* values, int count) {
  printf("%s", name);
  for (int i = 0; i < count; ++i) {
    uint32_t bits;
    memcpy(&bits, values + i, 4);
    printf(" %08lx", (unsigned long)bits);
  }
  printf("\\n");
}

static void report(const char* name) {
  printf("measured %s %lu %lu\\n", name, (unsigned long)measured_ticks, (unsigned long)measured_stack);
}

int main(void) {
  int failed;
  float loss;
  const int64_t label = 1;
  const float rate = 0.05f;
#if INFERS
  static float logits[CLASSES];
  fill(model_infer_image);
  measure_start();
  failed = model_infer(logits);
  measure_stop();
  if (failed) return 1;
  show("logits", logits, CLASSES);
  report("infer");
#endif
  for (int step = 0; step < STEPS; ++step) {
    fill(model_train_image);
    measure_start();
    failed = model_train(&label, &rate, &loss);
    measure_stop();
    if (failed) return 1;
    show("loss", &loss, 1);
    if (step == 0) report("train");
  }
#if INFERS
  fill(model_infer_image);
  if (model_infer(logits)) return 1;
  show("logits", logits, CLASSES);
#endif
  return 0;
}
"""


def write(report: tiny.Report, folder: Path, steps: int, infers: bool = True) -> None:
    """Completes a folder of `tiny.compile` with a main function that trains, and infers before and after."""
    _, height, width, channels = report.network.input_shape
    numbers = {
        "BYTES": height * width * channels,
        "CLASSES": report.network.classifier.bias.numel(),
        "STEPS": steps,
        "INFERS": int(infers),
    }
    defined = "".join(f"#define {name} {value}\n" for name, value in numbers.items())
    (folder / "main.c").write_text(defined + MAIN)
    (folder / "measure.h").write_text((HERE / "cortex_m" / "measure.h").read_text())


def parts(printed: str) -> tuple[str, dict[str, tuple[int, int]]]:
    """What a program printed: the bits of its results, and by function (instructions, bytes of the stack)."""
    lines = printed.splitlines()
    bits = "\n".join(line for line in lines if not line.startswith("measured"))
    rows = [line.split()[1:] for line in lines if line.startswith("measured")]
    return bits, {name: (TICK * int(ticks), int(stack)) for name, ticks, stack in rows}
