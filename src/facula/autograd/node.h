// Nodes of the tape. A node holds the edges to the nodes of its inputs and what its gradient formula saved.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "facula/op/operator.h"

namespace facula::autograd {

class Node;
struct Edge { Ref<Node> node; int input = 0; };   // input: which result of that node's operator

// A tensor kept for backward. Checks on reading that nobody wrote to it since: the error names the operator that
// saved it and the one that wrote.
class Saved {
 public:
  Saved() = default;
  Saved(const Tensor& t, bool is_output_of_node);
  Tensor unpack(const char* saved_by, const Ref<Node>& owner) const;
  bool defined() const { return bool(tensor_); }
  void release() { tensor_ = {}; }

 private:
  Tensor tensor_;      // an output is kept detached, to avoid a cycle; unpack attaches it to its node again
  uint32_t version_ = 0;
  bool output_ = false;
  int result_ = 0;
};

class Node : public RefCounted {
 public:
  explicit Node(int results);
  // Gradients of the inputs, one an edge, from those of the results (undefined: zero).
  virtual std::vector<Tensor> apply(std::vector<Tensor> grads, bool create_graph) = 0;
  virtual std::string name() const = 0;          // as grad_fn prints: "MulBackward0"
  virtual void release_saved() {}
  const std::vector<Edge>& edges() const { return edges_; }
  void add_edge(const Tensor& input);            // to its node, its accumulator, or nothing
  uint64_t sequence() const { return sequence_; }

  struct ResultMeta { Dims sizes; DType dtype; };
  std::vector<ResultMeta> results;               // of the forward call, to validate and to make zeros
  std::vector<std::pair<int, std::function<void(std::vector<Tensor>&)>>> pre_hooks;   // tensor hooks, by result
  std::vector<std::function<void(std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs)>> post_hooks;
  std::string created_at;                        // Python stack of the forward call, in anomaly mode
  void* py_object = nullptr;                     // borrowed

 protected:
  void destroy() override;                       // iterative: long chains do not overflow the stack
  std::vector<Edge> edges_;
  uint64_t sequence_;
};

// A custom function in C++: class F { static std::vector<Tensor> forward(Context&, ...); backward(Context&, grads) }
// is in function.h.

}  // namespace facula::autograd
