// The loop nests of recurrent layers: one time step of a few sequences, forward and backward. The code generator turns
// them into kernels, which recurrent.cpp calls step by step.
//
// Hidden units lie in the lanes. Forward, a few sequences' sums of all gates of a vector of units stay in registers while
// the state before the step is walked through, and become the unit's new state there. Backward, the sums are what
// arrives at the units' states from the step that follows in time.
#pragma once
#include "facula/loop/nest.h"

namespace facula::backend::cpu {

enum class Cell : uint8_t { lstm, gru, tanh, relu, none };  // none: a plain product
constexpr int gates_of(Cell c) { return c == Cell::lstm ? 4 : c == Cell::gru ? 3 : 1; }
// Numbers of a unit that a forward pass keeps for the gradient, before its new state: an LSTM's squashed gates and new cell
// state, a GRU's squashed gates and the product of its state that the reset gate scales.
constexpr int kept_of(Cell c) { return c == Cell::lstm ? 5 : c == Cell::gru ? 4 : 0; }

// What a nest was made for; the rest are parameters.
struct StepVariant {
  DType dtype = DType::Float32;  // Float32 or Float64: of all operands
  Cell cell = Cell::lstm;
  bool backward = false;
  bool keeps = false;  // forward: stores what the gradient needs
  int rows = 1;        // sequences whose sums are held in registers
  int vectors = 1;     // of units, likewise
  bool tail = false;   // the last strip of units is no whole one
  auto operator<=>(const StepVariant&) const = default;
};

// Integer parameters. Strides are in elements, from one sequence to the next.
struct StepParam {
  enum : int {
    blocks,  // of sequences
    strips,  // of units: ceil(units / (vectors * lanes))
    units,
    inner,  // terms of a sum
    given,
    state,
    cell,
    cell_next,
    out,
    kept,
    carried,
    carry,
    later,
    cell_grad,
    count
  };
};

// Buffers. A weight lies by strips: forward [strip, inner, gate, unit of the strip], backward [strip, inner, unit].
struct StepForward {
  enum : int {
    given,      // the products of the input, [sequence, gate, unit]
    weight,     // of the state
    bias,       // GRU: of the product that the reset gate scales, [unit]
    state,      // before the step, [sequence, inner]
    cell,       // LSTM: before the step
    cell_next,  // ... and after it; may be the same memory
    out,        // the state after the step, [sequence, unit]
    kept,       // [sequence, kept_of(cell) + 1, unit]
    count
  };
};
struct StepBackward {
  enum : int {
    given,       // what arrives at the state after the step from outside, [sequence, unit]
    weight,      // of the state
    carried,     // what arrives there past the products
    later,       // what arrives at the products of the following step, [sequence, inner]
    state,       // GRU: before the step
    cell,        // LSTM: before the step
    kept,        // as the forward pass has stored
    cell_grad,   // LSTM: what arrives at the cell state after the step
    out,         // the gradient of the products of the input, [sequence, gate, unit]
    of_state,    // GRU: that of the products of the state, likewise
    carry,       // GRU: what passes the products by; may be the memory of carried
    cell_carry,  // LSTM: the gradient of the cell state before the step; may be that of cell_grad
    count
  };
};

loop::Nest step_nest(const StepVariant& v);

}  // namespace facula::backend::cpu
