// Physical layouts at the border of a call (docs/layouts.md): operands whose elements lie in another order than their strides
// say are replaced by tensors over that memory, whose strides say it, for programs and libraries; results that come out with
// other strides than their logical ones get a physical layout in turn.
#pragma once
#include <deque>
#include <functional>
#include <vector>

#include "facula/graph/graph.h"
#include "facula/run/key.h"

namespace facula::run {

inline bool has_physical_layout(const TensorImpl* t) { return t && t->storage && !t->storage->is_logical(); }
inline bool any_physical_layout(std::span<const op::Value> args) {
  for (auto& v : args) {
    if (v.tag == op::Tag::tensor) {
      if (has_physical_layout(v.tensor)) [[unlikely]]
        return true;
    } else if (v.tag == op::Tag::tensors) {
      for (auto* t : v.tensors())
        if (has_physical_layout(t)) [[unlikely]]
          return true;
    }
  }
  return false;
}
inline bool any_physical_layout(std::span<const Tensor> tensors) {
  for (auto& t : tensors)
    if (has_physical_layout(t.impl())) [[unlikely]]
      return true;
  return false;
}

// How to treat an operand in a packed layout, which strides cannot describe: restore it, or keep it for libraries and kernels
// that know such layouts, and those of weights that strides could describe.
enum class Packed : uint8_t { restored, kept };

// The arguments and destinations of a call as they lie in memory, for the length of the call.
class InMemory {
 public:
  InMemory(std::span<const op::Value> args, std::span<const Tensor> out = {},
           Packed packed = Packed::restored);
  bool any() const { return !originals_.empty(); }  // else all are in the logical layout (by now)
  std::span<const op::Value> args() const { return args_; }
  std::span<const Tensor> out() const { return out_; }
  void append(Key& key) const;  // the logical strides of the replaced tensors
  // What the caller gave for a tensor of args(); null if it is not a replacement.
  TensorImpl* original(const TensorImpl* t) const;
  void restore() const;  // brings all that was replaced into the logical layout

 private:
  bool replace(std::span<const op::Value> args, std::span<const Tensor> out);
  SmallVector<op::Value, 8> args_;
  std::vector<Tensor> out_;
  std::deque<std::vector<TensorImpl*>> lists_;
  std::vector<std::pair<Tensor, TensorImpl*>> originals_;
  Packed packed_;
};

// Operands that are read and written element by element, in one order: that of the first packed one, which those that
// are not `fresh` (about to be written whole, by nobody else known) are moved into and stay in from then on. None if none
// is packed, or one can't be moved.
std::vector<Tensor> in_one_order(std::span<TensorImpl* const> operands, const std::vector<bool>& fresh,
                                 PhysicalOrder& order);

// Could the results depend on how the inputs lie in memory, or be views of them? Then they have to be in the logical layout.
bool needs_logical_inputs(const graph::Graph& g);

// How what the calls of a graph make lies in memory: puts tensors without data into `at`, by value number. Of
// convolutions it lies in channels_last, as they choose, and so does what is computed from that; outputs, and what is
// viewed in ways that channels_last does not allow, lie as they were traced. `args_of`: arguments of a call that
// lie as `at` says, which is there for inputs and constants. Without `symbols`: over the sizes' symbols. True: all lies as it was traced, as it will for other sizes if the inputs do.
bool place_values(const graph::Graph& g, IntSpan symbols, std::vector<Tensor>& at,
                  const std::function<op::Args(const graph::Node&)>& args_of);

// `t`, made by a program or library, with these logical strides.
Tensor with_logical_strides(Tensor t, SymSpan strides);
// Of the outputs of a graph.
std::vector<Dims> logical_strides(const graph::Graph& g);

}  // namespace facula::run
