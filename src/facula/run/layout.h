// Physical layouts at the boundary of a call (docs/layouts.md). An operand in a physical layout is replaced by a tensor over the
// same memory whose strides describe that layout, so that programs and libraries see plain strides. A result whose strides
// differ from its logical ones gets a physical layout in turn.
#pragma once
#include <deque>
#include <functional>
#include <vector>

#include "facula/graph/graph.h"
#include "facula/run/key.h"

namespace facula::graph {
struct Partition;  // passes.h
}
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

// The arguments and destinations of a call over their physical layouts, for the length of the call.
class InMemory {
 public:
  InMemory(std::span<const op::Value> args, std::span<const Tensor> out = {},
           Packed packed = Packed::restored);
  bool any() const { return !originals_.empty(); }  // if not, all are in the logical layout now
  std::span<const op::Value> args() const { return args_; }
  std::span<const Tensor> out() const { return out_; }
  void append(Key& key) const;  // appends the logical strides of the replaced tensors
  // The caller's tensor that `t`, of args(), replaces; null if it replaces none.
  TensorImpl* original(const TensorImpl* t) const;
  void restore() const;  // brings the replaced tensors into the logical layout

 private:
  bool replace(std::span<const op::Value> args, std::span<const Tensor> out);
  SmallVector<op::Value, 8> args_;
  std::vector<Tensor> out_;
  std::deque<std::vector<TensorImpl*>> lists_;
  std::vector<std::pair<Tensor, TensorImpl*>> originals_;
  Packed packed_;
};

// Brings the operands of an elementwise kernel into one packed layout, that of the first packed operand, and returns them over
// it. Operands that are not `fresh` are moved and stay in that layout; fresh ones are about to be overwritten and unknown
// elsewhere. Empty if no operand is packed, or if one cannot be moved.
std::vector<Tensor> in_one_order(std::span<TensorImpl* const> operands, const std::vector<bool>& fresh,
                                 PhysicalOrder& order);

// Whether the inputs must be in the logical layout, because results depend on their strides or are views of them.
bool needs_logical_inputs(const graph::Graph& g);

// Decides the strides of every value of a graph and writes tensors without data into `at`, by value number; inputs and constants
// are there already. Results of convolutions are channels_last, and so are values computed from them. The first `shown` outputs,
// and values whose views channels_last does not allow, keep their traced strides. `args_of`: the arguments of a call with
// the strides of `at`. Without `symbols` the strides are expressions over the symbols of sizes. True if every value keeps its
// traced strides; then this holds for other sizes too.
bool place_values(const graph::Graph& g, IntSpan symbols, std::vector<Tensor>& at,
                  const std::function<op::Args(const graph::Node&)>& args_of, size_t shown = SIZE_MAX);

// Whether the call is one that chooses the order in memory of its result, as convolutions do.
bool chooses_order(const graph::Node& n);

// Gives values that only the backward graph reads, and what is computed from them, the strides that place_values() chooses, in both
// graphs: otherwise they would be copied to their traced strides at the end of the forward graph, and back in the backward graph.
//   requires: graphs without calls of composites
void place_saved_values(graph::Partition& p);

// `t`, the result of a program or library, with these logical strides.
Tensor with_logical_strides(Tensor t, SymSpan strides);
// The logical strides of the outputs of a graph.
std::vector<Dims> logical_strides(const graph::Graph& g);

}  // namespace facula::run
