// Nodes of the tape. A node holds the edges to the nodes of its inputs and what its gradient formula saved.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "facula/tensor/block.h"
#include "facula/tensor/tensor.h"

namespace facula::op {
class Operator;
struct Value;
}  // namespace facula::op

namespace facula::autograd {

class Node;
// The destination of a gradient: result `input` of a node's operator. An edge to a leaf's accumulator keeps the leaf alive.
struct Edge {
  Ref<Node> node;
  int input = 0;
  Ref<TensorImpl> leaf;
  explicit operator bool() const { return bool(node); }
};

// A saved tensor in the form that a hook packed it. get() unpacks it. It may be destroyed on any thread.
class Packed : public RefCounted {
 public:
  virtual Tensor get() = 0;

 private:
  friend class Saved;
  Dims sizes_;
  DType dtype_ = DType::Float32;
  Edge edge_;  // of an input: where gradients of its gradient go
};
using PackHook = std::function<Ref<Packed>(const Tensor&)>;

// Hooks on what is saved, of the thread: the innermost takes every tensor that is kept for backward. Raises
// the message given while hooks are disabled.
void push_saved_hook(PackHook hook);
void pop_saved_hook();
const PackHook* saved_hook();                               // null: none
const std::string* saved_hooks_disabled();                  // null: they are allowed
void set_saved_hooks_disabled(const std::string* message);  // raises while hooks are in place

// A tensor kept for backward. Checks on reading that nobody wrote to it since: the error names the operator
// that saved it and the one that wrote.
class Saved {
 public:
  Saved() = default;
  Saved(const Tensor& t, bool is_output_of_node, int result = 0);
  // `owner`: the node that saved it, to which an output is attached again. Errors name it; `name`, if it is gone.
  Tensor unpack(const Ref<Node>& owner, const char* name = "") const;
  // For a value that the call which saves it has just overwritten: reading it raises.
  static Saved overwritten(const Tensor& t) {
    Saved s;
    s.tensor_ = t.detached();
    s.version_ = t.version() - 1;
    return s;
  }
  // Lets go of the history of a tensor that was written since, reading which raises anyway: gives the tensor that had it.
  Tensor drop_history_if_overwritten();
  bool defined() const { return bool(tensor_) || packed_; }
  // A tensor with the same sizes. Its elements must not be read; they may have been written since.
  Tensor shape_alone() const;
  void release() {
    tensor_ = {};
    packed_ = {};
  }
  // Packs the tensor with this hook; raises if it is packed already.
  void pack(const PackHook& hook);

 private:
  Tensor tensor_;       // an output is kept detached, to avoid a cycle; unpack attaches it to its node again
  Ref<Packed> packed_;  // in place of it
  uint32_t version_ = 0;
  bool output_ = false;
  int result_ = 0;
};

struct ResultMeta {
  Dims sizes;
  DType dtype;
  Device device{};
};
// Runs before the node, on the gradients of its results. `result`: the one a tensor hook belongs to, -1: all.
// `foreign`: what `run` owns one reference of, for a garbage collector.
struct PreHook {
  int id;
  int result;
  std::function<void(std::vector<Tensor>&)> run;
  void* foreign = nullptr;
};
struct PostHook {
  int id;
  std::function<void(std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs)> run;
  void* foreign = nullptr;
};
// The retained gradient of a tensor that is no leaf (retain_grad); shared by the tensor and its node.
struct RetainedGrad final : RefCounted {
  Tensor grad;
};

class Node : public RefCounted {
 public:
  explicit Node(int results);
  // Gradients of the inputs, one an edge, from those of the results (undefined: zero).
  virtual std::vector<Tensor> apply(std::vector<Tensor> grads, bool create_graph) = 0;
  // The name that grad_fn prints: "MulBackward0".
  std::string name() const { return called_ ? *called_ : own_name(); }
  // Names the last step of a procedure as the procedure's definition says.
  void set_name(const std::string& name);
  virtual void release_saved() {}
  virtual void each_saved(const std::function<void(Saved&)>&) {}
  // The saved tensor of the forward call's argument or result `name` ("result" if there is only one), or undefined.
  virtual Tensor saved_named(std::string_view) { return {}; }
  // Puts it away by a hook; false if nothing of that name was saved.
  virtual bool pack_saved(std::string_view, const PackHook&) { return false; }
  virtual bool is_accumulator() const { return false; }
  const std::vector<Edge>& edges() const { return edges_; }
  void add_edge(const Tensor& input);  // to its node, its accumulator, or nothing
  void add_edge(Edge e) { edges_.push_back(std::move(e)); }
  // Whether the running backward pass needs the gradient of input `k`; outside of one: whether any may.
  bool needs(size_t k) const;
  uint64_t sequence() const { return sequence_; }
  // Raises the error of a second backward pass after the saved tensors were freed. `maker`: the operator, if the name is less clear.
  [[noreturn]] void raise_freed(const char* maker = nullptr) const;

  std::vector<ResultMeta> results;  // of the forward call, to validate and to make zeros
  std::vector<PreHook> pre_hooks;   // in order of registration
  std::vector<std::pair<int, Ref<RetainedGrad>>> retained;  // by result; filled after the hooks have run
  std::vector<PostHook> post_hooks;
  std::string created_at;     // Python stack of the forward call, in anomaly mode
  void* py_object = nullptr;  // borrowed

 protected:
  virtual std::string own_name() const = 0;
  void destroy() override;  // iterative: long chains do not overflow the stack
  std::vector<Edge> edges_;
  uint64_t sequence_;

 private:
  const std::string* called_ = nullptr;  // one of few, kept for the life of the process
};

// The autograd slot of a tensor (TensorImpl::grad_slot).
struct Meta final : detail::Recycled<Meta> {
  ~Meta();
  Tensor grad;                 // of a leaf
  Ref<RetainedGrad> retained;  // of another, after retain_grad()
  Ref<Node> node;              // whose result this tensor is; null for leaves
  int result = 0;
  Ref<Node> accumulator;                         // of a leaf, made on first use
  std::vector<std::pair<int, Ref<Node>>> hooks;  // id and node of the hooks registered on this tensor
  // If the tensor is a view: its base (never itself a view), how it was made, and the storage version that `node` describes.
  enum class Origin : uint8_t { alone, one_of_many, without_grad } origin = Origin::alone;
  Tensor base;
  const char* maker = "";  // operator that made one of many
  int number = 0;          // which of many
  uint32_t seen = 0;
  Tensor tangent;  // forward mode: of this level (forward.h)
  uint64_t level = 0;
  Tensor physical;     // vmap: the whole batch that this tensor, which has no data, is one of (batch.h)
  uint64_t batch = 0;  // which level of vmap; 0: none
};
Meta* meta_of(const Tensor& t);  // null if there is none
Meta& ensure_meta(const Tensor& t);

// Makes `t` result `k` of `node`. The node's `results` are filled as far as they are not.
void set_history(const Tensor& t, const Ref<Node>& node, int k);
// The edge to the node or accumulator of `t`; empty if it requires no gradient.
Edge edge_of(const Tensor& t);
// Zeros of a result that got no gradient.
Tensor zeros_of(const ResultMeta& m);
// "index_select" -> "IndexSelectBackward0".
std::string node_name(std::string_view op);
// The name of a call's node: from the definition, or derived from the operator.
std::string node_name(const op::Operator& o, std::span<const op::Value> args);

// Custom functions in C++ and the base of Python's are in function.h.

}  // namespace facula::autograd
