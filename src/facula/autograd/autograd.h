// Reverse-mode automatic differentiation on a tape: the user-facing functions and modes.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "facula/autograd/node.h"

namespace facula::op {  // op/operator.h; programs of users do without it
class Operator;
struct Value;
class Results;
class Vjp;
enum class Form : uint8_t;
}  // namespace facula::op

namespace facula::autograd {

// Modes of the thread.
bool grad_enabled();
bool inference_enabled();
class GradMode {  // no_grad / enable_grad / set_grad_enabled for a scope
 public:
  explicit GradMode(bool enabled);
  ~GradMode();

 private:
  bool outer_;
};
void set_grad_enabled(bool enabled);
class InferenceMode {
 public:
  explicit InferenceMode(bool enabled = true);
  ~InferenceMode();

 private:
  bool outer_, outer_grad_;
};
bool anomaly_enabled();
bool anomaly_checks_nan();
void set_anomaly(bool enabled, bool check_nan = true);
// The source of the forward call site in anomaly mode: the binding sets a function that formats the Python stack.
void set_stack_source(std::string (*capture)());
std::string captured_stack();

// Sums gradients into the leaves' .grad. `grads[i]` undefined: ones for a one-element output, else
// RuntimeError. `inputs` non-empty: only these accumulate. Raises if the graph was freed (retain_graph false)
// before.
void backward(std::span<const Tensor> outputs, std::span<const Tensor> grads, bool retain_graph,
              bool create_graph, std::span<const Tensor> inputs = {});
// Gradients of outputs with respect to inputs, accumulating nowhere. Without allow_unused an input that is
// not reached raises; with it, its gradient is undefined.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> grads, bool retain_graph, bool create_graph,
                         bool allow_unused);

// The backward that runs on this thread, counted from 1; 0: none. And does it run this node?
uint64_t backward_number();
bool backward_runs(const Node& n);
bool backward_restricted();  // is it for some inputs only?

// The gradient slot of a tensor.
Tensor grad_of(const Tensor& t);
void set_grad(const Tensor& t, const Tensor& g);      // checks sizes, dtype and device as PyTorch
void set_requires_grad(const Tensor& t, bool value);  // RuntimeError for integer dtypes and non-leaves
bool is_leaf(const Tensor& t);
void retain_grad(const Tensor& t);
bool retains_grad(const Tensor& t);
Tensor detach(const Tensor& t);  // shares storage and version
void detach_(const Tensor& t);
int add_hook(const Tensor& t, std::function<Tensor(const Tensor&)> hook,
             void* foreign = nullptr);  // undefined: keeps the gradient; gives an id
int add_accumulated_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook,
                         void* foreign = nullptr);  // after .grad was summed
int add_hook(Node& node, std::function<void(std::vector<Tensor>& grads)> before,
             void* foreign = nullptr);  // of the node's results
int add_hook(Node& node,
             std::function<void(std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs)> after,
             void* foreign = nullptr);
void remove_hook(const Tensor& t, int id);
void remove_hook(Node& node, int id);
Ref<Node> node_of(const Tensor& t);  // null for leaves; rebuilt for views written in place
Ref<Node> accumulator_of(const Tensor& leaf);

// Called by run/ for each eager call. `needs_record`: gradient mode is on and some operand requires a
// gradient.
bool needs_record(std::span<const op::Value> args);
// After an operator has run (and versions were bumped): attaches a node to its results, with what its
// gradient saves. `original`: what original_of gave before the write.
void record(const op::Operator& op, std::span<const op::Value> args, op::Form form, op::Results& results,
            const Tensor& original = {});
// Before an in-place write that will be recorded: a copy of the first argument if the gradient needs its old
// value, else undefined.
Tensor original_of(const op::Operator& op, std::span<const op::Value> args);
// A copy of a tensor that is about to be written, with its history: it takes part in derivatives as the old value.
Tensor copy_with_history(const Tensor& t);
// Before an in-place write: refuses leaves that require grad, expanded memory, views that may not be written.
void check_in_place(const char* op, const Tensor& target, bool recording);
// After a view was made: remembers its base. `multi`: one of several outputs of one call of `maker`.
void track_view(const Tensor& view, const Tensor& base, bool multi, const char* maker = "", int number = 0);
// The node of one call: edges to its operands' nodes and what its gradient reads, saved. Results are not
// attached yet.
Ref<Node> make_node(const op::Operator& op, std::span<const op::Value> args, std::span<const Tensor> results,
                    const Tensor& original = {});
// Attaches `node`, whose first edge leads to the target, after an in-place write to `target`: directly, or to
// the base through the written part if the target is a view.
void rebase_history(const Tensor& target, const Ref<Node>& node);

// The gradient of one call in terms of operator calls, whatever the operator's kind: the derivative of the
// body, the transposed loops, the inverse view steps, the rule given. Used by the tape and by graph/joint
// alike.
std::vector<Tensor> gradient(const op::Operator& op, const op::Vjp& v);

}  // namespace facula::autograd
