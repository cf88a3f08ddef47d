"""A network of `facula.tiny` on boards: a main function that trains, and prints bits and measurements."""

from __future__ import annotations

from pathlib import Path

import facula as F
from facula import tiny

Tensor = F.Tensor
HERE = Path(__file__).resolve().parent


def main_text(report: tiny.Report, image: Tensor, steps: int, label: int = 1, rate: float = 0.05) -> str:
    classes = report.network.classifier.bias.numel()
    numbers = ", ".join(str(v) for v in image.flatten().tolist())
    return f"""#include <stdio.h>
#include <string.h>

#include "model.h"
#include "measure.h"

static const int8_t image[] = {{{numbers}}};

static void show(const char* name, const float* values, int count) {{
  printf("%s", name);
  for (int i = 0; i < count; ++i) {{
    uint32_t bits;
    memcpy(&bits, values + i, 4);
    printf(" %08lx", (unsigned long)bits);
  }}
  printf("\\n");
}}

static void report(const char* name) {{
  printf("measured %s %lu %lu\\n", name, (unsigned long)measured_ticks * 40, (unsigned long)measured_stack);
}}

int main(void) {{
  static float logits[{classes}];
  float loss;
  const int64_t label = {label};
  const float rate = {rate!r}f;
  memcpy(model_infer_image, image, sizeof image);
  measure_start();
  int failed = model_infer(logits);
  measure_stop();
  if (failed) return 1;
  show("logits", logits, {classes});
  report("infer");
  for (int step = 0; step < {steps}; ++step) {{
    memcpy(model_train_image, image, sizeof image);
    measure_start();
    failed = model_train(&label, &rate, &loss);
    measure_stop();
    if (failed) return 1;
    show("loss", &loss, 1);
    if (step == 0) report("train");
  }}
  memcpy(model_infer_image, image, sizeof image);
  if (model_infer(logits)) return 1;
  show("logits", logits, {classes});
  return 0;
}}
"""


def write(report: tiny.Report, folder: Path, image: Tensor, steps: int) -> None:
    """Completes a folder of `tiny.compile` with main.c."""
    (folder / "main.c").write_text(main_text(report, image, steps))
    (folder / "measure.h").write_text((HERE / "cortex_m" / "measure.h").read_text())
