// The loop nests of recurrent layers: one time step of a few sequences, forward and backward. The code generator compiles
// them, and recurrent.cpp calls the kernels step by step.
//
// Hidden units are in the lanes. Forward, the sums of all gates of a vector of units, for a few sequences, stay in
// registers while the kernel walks over the state before the step, and become the units' new state there. Backward, the
// sums are the gradients that reach the units' states from the following time step.
#pragma once
#include "facula/loop/nest.h"

namespace facula::device::cpu {

enum class Cell : uint8_t { lstm, gru, tanh, relu, none };  // none: a plain product
constexpr int gates_of(Cell c) { return c == Cell::lstm ? 4 : c == Cell::gru ? 3 : 1; }
// Numbers per unit that a forward pass saves for the gradient in front of its new state: the activated gates and the new
// cell state of an LSTM; the activated gates of a GRU and the product of its state that the reset gate scales.
constexpr int saved_of(Cell c) { return c == Cell::lstm ? 5 : c == Cell::gru ? 4 : 0; }

// The properties that a nest is built for; everything else is a parameter.
struct StepVariant {
  DType dtype = DType::Float32;  // Float32 or Float64: of all operands
  Cell cell = Cell::lstm;
  bool backward = false;
  bool keeps = false;  // forward: stores what the gradient needs
  int rows = 1;        // sequences whose sums are held in registers
  int vectors = 1;     // of units, likewise
  bool tail = false;   // the last strip of units is not full
  auto operator<=>(const StepVariant&) const = default;
};

// Integer parameters. Strides are in elements, from one sequence to the next.
struct StepParam {
  enum : int {
    blocks,  // of sequences
    strips,  // of units: ceil(units / (vectors * lanes))
    units,
    inner,  // terms of a sum
    external,
    state,
    cell,
    cell_next,
    out,
    saved,
    carried,
    carry,
    later,
    cell_grad,
    count
  };
};

// Buffers. A weight is stored by strips: forward [strip, inner, gate, unit of the strip], backward [strip, inner, unit].
struct StepForward {
  enum : int {
    external,   // the products of the input, [sequence, gate, unit]
    weight,     // of the state
    bias,       // GRU: of the product that the reset gate scales, [unit]
    state,      // before the step, [sequence, inner]
    cell,       // LSTM: before the step
    cell_next,  // the cell state after the step; may be the same memory
    out,        // the state after the step, [sequence, unit]
    saved,      // [sequence, saved_of(cell) + 1, unit]
    count
  };
};
struct StepBackward {
  enum : int {
    external,    // the gradient of the state after the step from outside of the layer, [sequence, unit]
    weight,      // of the state
    carried,     // the part of that gradient that does not pass through the products
    later,       // the gradient of the products of the following step, [sequence, inner]
    state,       // GRU: before the step
    cell,        // LSTM: before the step
    saved,       // numbers that the forward pass saved
    cell_grad,   // LSTM: the gradient of the cell state after the step
    out,         // the gradient of the products of the input, [sequence, gate, unit]
    of_state,    // GRU: the gradient of the products of the state, likewise
    carry,       // GRU: the gradient that does not pass through the products; may share the memory of carried
    cell_carry,  // LSTM: the gradient of the cell state before the step; may share the memory of cell_grad
    count
  };
};

loop::Nest step_nest(const StepVariant& v);

}  // namespace facula::device::cpu
