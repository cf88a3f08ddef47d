// Packs operands of float32 or 16-bit floats into panels of tiles (loop/tiles.h): each number is divided into `parts` bfloat16,
// whose sum it is (tile_nest.h), and a word holds the terms k and k + 16 of a step.
#pragma once
#include <functional>

#include "facula/device/cpu/nest_builder.h"
#include "facula/loop/tiles.h"

namespace facula::device::cpu {

// The 32 rows of a left operand, or the 32 columns of a right one, that a panel holds are called its lines.
struct PanelForm {
  bool left;
  bool terms_adjacent;  // in the operand's memory; else lines are
  int parts;
  int source, into;  // buffers
  DType memory;      // of the source
  bool with_range;   // the smallest and the largest absolute value are wanted
};

struct PanelSource {
  loop::Expr origin;        // the offset of the first term of line 0
  loop::Expr stride;        // between elements that are not adjacent
  loop::Expr first, lines;  // the panel's first line, and the number of lines that the operand has
  loop::Expr terms;
  // If set: where the elements of a line (a term, if lines are adjacent) begin, in place of origin + stride * line; negative: they are zero.
  std::function<loop::Expr(loop::Expr)> begin{};
};

// Bits of absolute values, Int32. `least` ignores zeros, and is the bits of infinity if there is nothing else.
struct PanelRange {
  loop::Expr least, most;
};

// Appends statements that pack a panel to the words from `into` on. Terms beyond the last are zero; lines beyond the last hold
// anything.
PanelRange pack_panel(NestBuilder& n, const PanelForm& form, const PanelSource& source, loop::Expr into);

}  // namespace facula::device::cpu
