// The mode in which calls become nodes of a graph, while a function is traced (trace.h).
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

// A handle for users: re-pointed by in-place calls, while the value's own tensor stays.
Tensor handle(Value* v);
// Are sizes and strides the same?
bool lies_as(const Tensor& a, const Tensor& b);
// Traces f; `capture`: it is a user's function.
Graph traced(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
             Capture* capture);

class Tracer final : public op::Mode {
 public:
  // `captures`: of a user's function (capture).
  Tracer(Graph* g, bool captures) : graph_(g), captures_(captures) {}
  bool records() const override { return true; }

  Results take(const Operator& o, std::span<const op::Value> args, Form form,
               std::span<const Tensor> out) override;
  Value* constant(const Tensor& t);
  Value* value_now(const Tensor& t) { return t.is_traced() ? current(value_of(t)) : constant(t); }

  // As it is by now, written tensors from outside too.
  Value* value_by_now(const Tensor& t) { return current(value_now(t)); }

  // While a call that is inlined, or that a write or a gradient needs, makes calls of its own.
  struct Inside {
    explicit Inside(Tracer* t) : depth(&t->depth_) { ++*depth; }
    ~Inside() { --*depth; }
    int* depth;
  };
  // While values that are there stand for themselves, though their memory was written since.
  struct Frozen {
    explicit Frozen(Tracer* t) : tracer(t), outer(t->frozen_) {
      t->frozen_ = int(t->graph_->values().size());
    }
    ~Frozen() { tracer->frozen_ = outer; }
    Tracer* tracer;
    int outer;
  };
  Tensor without_history(const Tensor& t);

  // What the memory of a value holds by now, seen through the same views.
  Value* current(Value* v);

  // While one lives, elements that the host reads are noted. A read of what the function has written is refused: it is not
  // computed yet.
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
  bool in_backward() const { return dormant_ >= 0; }
  // Calls of functions whose backward read what was written since, by other ways than save_for_backward.
  std::vector<const Node*> outdated();
  static void check_outdated(const Node& n);

 private:
  struct Memory {
    Value *first, *now;
  };
  // A backward of a custom function: its calls, taken out of the graph.
  struct Recorded {
    FunctionGradient gradient;
    std::vector<std::unique_ptr<Node>> calls;
    std::vector<Value*> grads, found;
  };

  // ---- custom functions (trace_function.cpp)
  std::vector<std::vector<bool>> choices_of_needs(const autograd::TracedFunction& f) const;
  std::vector<Tensor> results_of(autograd::TracedFunction& f, const Node& call,
                                 const std::vector<Tensor>& carried);
  void take_gradients(autograd::TracedFunction& f, Node& call, const std::vector<std::vector<bool>>& needs,
                      const std::vector<Tensor>& results, Value* sizes);
  Value* sizes_at(const std::vector<Tensor>& inputs);
  Recorded record_backward(autograd::TracedFunction& f, const Node& call, std::vector<bool> needs,
                           std::vector<bool> given);
  static std::vector<Value*> reads_of(const std::vector<Recorded>& all, const std::vector<Value*>& results);
  static std::vector<Value*> inputs_of(const Recorded& r, const std::vector<Value*>& reads,
                                       const std::vector<Value*>& results);
  static bool has_sizes(const Recorded& r, const std::vector<Value*>& reads,
                        const std::vector<Value*>& results);
  void set_graph(Recorded& r, const std::vector<Value*>& reads, const std::vector<Value*>& results,
                 size_t begun);

  // ---- calls
  Results record(const Operator& o, std::span<const op::Value> values);
  static Results results_of(const Node& n);
  std::vector<op::Meta> metas_of(const Operator& o, std::span<const op::Value> values, bool cuts);
  void check_few(const Operator& o, std::span<const op::Value> values,
                 const std::vector<op::Meta>& metas) const;
  Node* equal_call(const Operator& o, std::span<const op::Value> values);
  // `left`: calls that may be looked at still; beyond them nothing is equal.
  static bool equal_arguments(const op::Args& a, const op::Args& b, int& left);
  static bool equal_values(const Value* a, const Value* b, int& left);
  Results inlined(const Operator& o, std::span<const op::Value> values);
  // A user's function that writes to arguments: one call that gives what they become, and the writes.
  Results writing(const Operator& o, std::span<const op::Value> values, size_t before, bool recorded);
  // The call as it is; its results are like those of its calls. Not of one that writes, or gives no tensor somewhere.
  std::optional<Results> one_node(const Operator& o, std::span<const op::Value> values);
  Tensor invoke(std::string_view name, std::initializer_list<op::Value> args) {
    op::Mode::With on(this);
    Inside here(this);
    return autograd::invoke(name, args);
  }

  // ---- memory and writes
  Value* now_of(Value* base);
  // The value that the memory of v began with.
  Value* first_of(Value* v) const;
  void check_written(Value* v) const;
  Value* base_of(Value* v) const;
  // Of a base that is written a view may not see more than the trace knows.
  void check_seen(Value* v, Value* base) const;
  void check_views(const Results& results) const;
  // The views that lead from `base` to v, of `now`.
  Value* seen_through(Value* v, Value* base, Value* now);
  // `target` is current. Nodes from `before` on were made by the call whose result is written.
  void write(const Operator& o, const Tensor& target, Tensor value, size_t before, bool recorded);
  void show_as(const Operator& o, const Tensor& target, const Tensor& view, const op::Value& given);
  bool resized(const Operator& o, const Tensor& target, const Tensor& value);
  // What the view v is seen in, within base, with `value` where the view lies; v becomes that.
  Tensor put_back(const Operator& by, Value*& v, Value* base, const Tensor& value);
  Tensor laid_as(Value* base, const Tensor& value);
  Tensor strided_into(const Tensor& into, const op::ViewStep& s, SymInt start, const Tensor& value);
  // May a gradient reach an input of the function from here?
  bool carries_gradient(const Value* of) const;
  // The numbers of `value`, with the gradient of `self`: a write that is not recorded leaves history as it was.
  Tensor with_history(const Tensor& self, const Tensor& value) {
    return is_differentiable(value.dtype()) ? invoke("_with_history", {self, without_history(value)}) : value;
  }

  static void note(const Tensor& t);

  Graph* graph_;
  bool captures_;
  int depth_ = 0;           // of calls that are made for a call of the function
  int frozen_ = 0;          // values with smaller numbers stand for themselves
  int dormant_ = -1;        // the backward of a custom function is recorded: the number of its first value
  std::vector<bool> gone_;  // by number: values of such a backward that is over
  std::unordered_map<Value*, Value*>
      aliases_;  // results of custom functions, and the value whose memory they share
  std::vector<std::pair<const Node*, Value*>> watched_;
  std::vector<Node*> cuts_;  // calls whose results have a size that is known only when they have run
  std::unordered_map<const TensorImpl*, Value*> constants_;
  // Memory that is one in eager and is not here, by the value that each began with: all of it, and what of it was not
  // written when the rest was.
  std::unordered_map<const Value*, std::shared_ptr<std::vector<const Value*>>> parted_;
  std::unordered_set<const Value*> stale_;
  std::unordered_set<const Value*> tracked_;  // values whose memory began with them, and has a history by now
  std::unordered_map<Value*, std::shared_ptr<Memory>>
      memory_;  // written ones, by every value that was their base
};

}  // namespace facula::graph
