// The mode that records calls as nodes of a graph while a function is traced (trace.h).
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "facula/autograd/calls.h"
#include "facula/autograd/tracing.h"
#include "facula/graph/function.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"

namespace facula::graph {

using op::Form;
using op::Operator;
using op::Results;

// A handle for users. In-place calls make it refer to another value, while the value's own tensor never changes.
Tensor handle(Value* v);
// True if sizes and strides are equal.
bool has_layout_of(const Tensor& a, const Tensor& b);
// Traces f; `capture` is set if f is a user's function.
Graph traced(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
             Capture* capture);

class Tracer final : public op::Mode {
 public:
  // `captures`: tensors from outside may be captured (a user's function).
  Tracer(Graph* g, bool captures) : graph_(g), captures_(captures) {}
  bool records() const override { return true; }

  Results take(const Operator& o, std::span<const op::Value> args, Form form,
               std::span<const Tensor> out) override;
  Value* constant(const Tensor& t);
  Value* recorded_value(const Tensor& t) { return t.is_traced() ? current(value_of(t)) : constant(t); }

  // The current value of a tensor, including writes to tensors from outside.
  Value* current_value(const Tensor& t) { return current(recorded_value(t)); }

  // Lives while calls are made on behalf of a call of the function: by inlining it, or for a write or a gradient.
  struct Inside {
    explicit Inside(Tracer* t) : depth(&t->inner_depth_) { ++*depth; }
    ~Inside() { --*depth; }
    int* depth;
  };
  // While a Frozen lives, values that exist already are read as they are, even if their memory was written since.
  struct Frozen {
    explicit Frozen(Tracer* t) : tracer(t), outer(t->frozen_before_) {
      t->frozen_before_ = int(t->graph_->values().size());
    }
    ~Frozen() { tracer->frozen_before_ = outer; }
    Tracer* tracer;
    int outer;
  };
  Tensor without_history(const Tensor& t);

  // The value that v has now, after writes to its memory, through the same view chain.
  Value* current(Value* v);

  // While an Observed lives, elements that the host reads are recorded. Reading something that the function has
  // written is an error, since it has not been computed.
  struct Observed {
    Observed(Tracer* t, std::vector<Capture::Read>* into);
    ~Observed();
    Tracer* outer;
    std::vector<Capture::Read>* outer_into;
  };

  void computes_view(const Tensor& result, const Tensor& of);

  // ---- custom functions (function.h, trace_function.cpp)
  void enter(autograd::TracedFunction& f);
  std::vector<Tensor> function(autograd::TracedFunction& f);
  bool in_backward() const { return backward_begin_ >= 0; }
  // Calls of custom functions whose backward reads, other than by save_for_backward, something that was written
  // since.
  std::vector<const Node*> outdated();
  static void check_outdated(const Node& n);

 private:
  struct Memory {
    Value *first, *now;
  };
  // The backward of a custom function, with its calls, which are removed from the graph.
  struct Recorded {
    FunctionGradient gradient;
    std::vector<std::unique_ptr<Node>> calls;
    std::vector<Value*> grads, input_grads;
  };

  // ---- custom functions (trace_function.cpp)
  std::vector<std::vector<bool>> choices_of_needs(const autograd::TracedFunction& f) const;
  std::vector<Tensor> results_of(autograd::TracedFunction& f, const Node& call,
                                 const std::vector<Tensor>& carried);
  void take_gradients(autograd::TracedFunction& f, Node& call, const std::vector<std::vector<bool>>& needs,
                      const std::vector<Tensor>& results, Value* sizes);
  Value* sizes_at(const std::vector<Tensor>& inputs);
  Recorded record_backward(autograd::TracedFunction& f, const Node& call, std::vector<bool> needs,
                           std::vector<bool> defined);
  static std::vector<Value*> reads_of(const std::vector<Recorded>& all, const std::vector<Value*>& results);
  static std::vector<Value*> inputs_of(const Recorded& r, const std::vector<Value*>& reads,
                                       const std::vector<Value*>& results);
  static bool has_sizes(const Recorded& r, const std::vector<Value*>& reads,
                        const std::vector<Value*>& results);
  void set_graph(Recorded& r, const std::vector<Value*>& reads, const std::vector<Value*>& results,
                 size_t first_node);

  // ---- calls
  Results record(const Operator& o, std::span<const op::Value> values);
  static Results results_of(const Node& n);
  std::vector<op::Meta> metas_of(const Operator& o, std::span<const op::Value> values, bool cuts);
  void check_small_sizes(const Operator& o, std::span<const op::Value> values,
                         const std::vector<op::Meta>& metas) const;
  Node* equal_call(const Operator& o, std::span<const op::Value> values);
  // `left`: how many more calls may be compared; beyond that, values count as different.
  static bool equal_arguments(const op::Args& a, const op::Args& b, int& left);
  static bool equal_values(const Value* a, const Value* b, int& left);
  Results inlined(const Operator& o, std::span<const op::Value> values);
  // A user's function that writes to arguments: records one call that gives their new values, followed by the writes.
  Results writing(const Operator& o, std::span<const op::Value> values, size_t before, bool recorded);
  // Records the call itself as one node; its results have the metadata of the results of its body. None if the body
  // writes, or if a result is not a tensor.
  std::optional<Results> one_node(const Operator& o, std::span<const op::Value> values);
  Tensor invoke(std::string_view name, std::initializer_list<op::Value> args) {
    op::Mode::With on(this);
    Inside here(this);
    return autograd::invoke(name, args);
  }

  // ---- memory and writes
  Value* now_of(Value* base);
  // The first value of the memory of v.
  Value* first_of(Value* v) const;
  void check_written(Value* v) const;
  Value* base_of(Value* v) const;
  // Refuses views of a written base that show elements outside of what the trace knows.
  void check_seen(Value* v, Value* base) const;
  void check_views(const Results& results) const;
  // Recreates the view chain from `base` to v on the value `now`.
  Value* seen_through(Value* v, Value* base, Value* now);
  // The history of a tensor after a write: that of the new value; the target's, as the write is not recorded; or one
  // that passes no gradient on, as the operator has none.
  enum class Written : uint8_t { recorded, unrecorded, ended };
  static Written history_after(const Operator& o, size_t k);
  // `target` must be current. Nodes from `before` on were created by the call whose result is written.
  void write(const Operator& o, const Tensor& target, Tensor value, size_t before, Written history);
  void show_as(const Operator& o, const Tensor& target, const Tensor& view, const op::Value& argument);
  bool resized(const Operator& o, const Tensor& target, const Tensor& value);
  // Gives the value of the operand of the view v, within base, after `value` was written through v; sets v to that
  // operand.
  Tensor put_back(const Operator& by, Value*& v, Value* base, const Tensor& value);
  Tensor laid_as(Value* base, const Tensor& value);
  Tensor strided_into(const Tensor& into, const op::ViewStep& s, SymInt start, const Tensor& value);
  // True if a gradient could flow from here to an input of the function.
  bool carries_gradient(const Value* of) const;
  // The numbers of `value` with the history of `self`: a write that is not recorded leaves the history unchanged.
  Tensor with_history(const Tensor& self, const Tensor& value) {
    return is_differentiable(value.dtype()) ? invoke("_with_history", {self, without_history(value)}) : value;
  }

  static void note(const Tensor& t);

  Graph* graph_;
  bool captures_;
  int inner_depth_ = 0;    // nesting of calls that are made on behalf of a call of the function
  int frozen_before_ = 0;  // values with smaller numbers are read as they are
  // Number of the first value of the custom function's backward that is being recorded; -1: none.
  int backward_begin_ = -1;
  // By number: values of such backwards, which must not be read outside of them.
  std::vector<bool> ended_backward_;
  // By result of a custom function: the value with which it shares memory.
  std::unordered_map<Value*, Value*> aliases_;
  std::vector<std::pair<const Node*, Value*>> backward_reads_;
  // Data-dependent calls, whose results have a size that is known after they have run.
  std::vector<Node*> data_dependent_;
  std::unordered_map<const TensorImpl*, Value*> constants_;
  // Memory that eager calls would share and the trace copies, by the first value of each part: all parts. Parts that
  // were not updated when another part was written are stale.
  std::unordered_map<const Value*, std::shared_ptr<std::vector<const Value*>>> separated_;
  std::unordered_set<const Value*> stale_;
  std::unordered_set<const Value*> with_history_;  // first values of memory that has received a history
  // Written memory, by every value that was its base.
  std::unordered_map<Value*, std::shared_ptr<Memory>> memory_;
};

}  // namespace facula::graph
