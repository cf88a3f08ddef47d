// The mode that records calls as nodes of a graph while a function is traced (trace.h).
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/tracing.h"
#include "facula/graph/break.h"
#include "facula/graph/cells.h"
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
  // The same for a tensor that was not read yet, as an input with this specification.
  Value* outside(const Tensor& t, const InputSpec& spec);
  Value* recorded_value(const Tensor& t) { return is_own(t) ? current(value_of(t)) : constant(t); }

  // Lets values of an enclosing trace be read as tensors from outside.
  void read_values_of(const Tracer& enclosing) { enclosing_ = &enclosing; }
  // Whether a tensor is a value of this trace, and not a tensor from outside.
  bool is_own(const Tensor& t) const {
    return t.is_traced() && !(enclosing_ && !knows(value_of(t)) && enclosing_->reads(value_of(t)));
  }
  // Refuses another name, among the tensors from outside, of the memory of a written value of an enclosing trace.
  void check_names(const Tensor& written, std::span<const Tensor> outside) const;

  // The current value of a tensor, including writes to tensors from outside.
  Value* current_value(const Tensor& t) { return current(recorded_value(t)); }
  Value* first_of(Value* v) const { return cells_.first_of(v); }  // the first version of its memory

  // Lives while calls are made on behalf of a call of the function: by inlining it, or for a write or a gradient.
  struct Inside {
    explicit Inside(Tracer* t) : tracer(t), records(t->records_inside_) {
      if (!t->inner_depth_++) t->records_inside_ = autograd::grad_enabled();
    }
    ~Inside() {
      --tracer->inner_depth_;
      tracer->records_inside_ = records;
    }
    Tracer* tracer;
    bool records;
  };
  // Lives while the user's code is called in the middle of that: hooks.
  struct Outside {
    explicit Outside(Tracer* t)
        : tracer(t),
          depth(std::exchange(t->inner_depth_, 0)),
          frozen(std::exchange(t->frozen_before_, 0)),
          line(std::exchange(t->line_, nullptr)) {}
    ~Outside() {
      tracer->line_ = line;
      tracer->inner_depth_ = depth;
      tracer->frozen_before_ = frozen;
    }
    Tracer* tracer;
    int depth, frozen;
    const SourceLine* line;
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

  // ---- handles that callers get (open traces)
  void keep_handles() { keeps_handles_ = true; }
  bool keeps_handles() const { return keeps_handles_; }
  void keep(const Tensor& t) {
    if (keeps_handles_ && t.defined() && t.is_traced()) handles_.push_back(t);
  }
  const std::vector<Tensor>& handles() const { return handles_; }
  // A handle, which is kept, that callers get in place of a tensor from outside. Its layout has to remain that tensor's.
  void stands_for_outside(const Tensor& handle) {
    outside_handles_.insert(handle.impl());
    keep(handle);
  }
  Location locate(const Tensor& t) { return cells_.locate(current_value(t)); }
  // Whether v is a value of this trace.
  bool knows(const Value* v) const {
    return v->id >= 0 && size_t(v->id) < graph_->values().size() &&
           graph_->values()[size_t(v->id)].get() == v;
  }
  // How often memory was written that is from outside or whose first value has a number below `values`, and handles of such
  // values were given other ones.
  int writes(size_t values) const {
    return cells_.writes(values) +
           int(std::ranges::count_if(exchanged_, [&](int id) { return size_t(id) < values; }));
  }
  // Refuses memory that other memory of eager calls would share, and the trace copies.
  void check_separate(const Location& at) const;
  // Whether the memory of v was written since.
  bool is_written(Value* v) {
    Outside now(this);
    return current(v) != v;
  }

  // Whether the user, and not the body of an operator, has written memory; and that of v since it had this value.
  bool has_written() const { return has_written_; }
  bool is_written_by_user(Value* v) const {
    auto* base = cells_.version_of(v);
    auto* cell = cells_.find(base);
    return cell && cell->users_version > base->id;
  }

  // Whether the call was made in place, so that eager mode keeps a copy of its first operand if the gradient needs it.
  bool keeps_first(const Node& n) const { return in_place_.count(&n); }

  // ---- lines of the user's program
  // Lives while calls are recorded whose line was set by continue_line().
  struct SameLine {
    explicit SameLine(Tracer* t) : tracer(t), outer(t->line_), own(Break::current_line()) { t->line_ = &own; }
    ~SameLine() { tracer->line_ = outer; }
    Tracer* tracer;
    const SourceLine* outer;
    SourceLine own;  // of calls without another line
  };
  // The calls that follow belong to the line of n.
  void continue_line(const Node& n, const SameLine& of_pass) {
    auto it = lines_.find(&n);
    line_ = it == lines_.end() ? &of_pass.own : &it->second;
  }
  Lines take_lines() { return std::move(lines_); }

  // The hook that saved-tensor hooks apply to what the gradient of n reads; null: none.
  const autograd::PackHook* pack_of(const Node& n) const {
    auto it = packs_.find(&n);
    return it == packs_.end() ? nullptr : it->second.get();
  }
  bool packs() const { return !packs_.empty(); }
  Tensor with_history_of(const Tensor& self, const Tensor& value) { return with_history(self, value); }
  bool has_history() const { return has_history_; }  // a call was recorded while gradients were enabled

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
  std::vector<const Value*> take_operands(const Operator& o, op::Args& args,
                                          std::vector<std::pair<Tensor, Tensor>>& operands);
  Results take_call(const Operator& o, std::span<const op::Value> args, Form form,
                    std::span<const Tensor> out);
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

  // The first version of the memory of v, a value of an enclosing trace.
  const Value* enclosing_memory(Value* v) const {
    return enclosing_->knows(v) ? enclosing_->first_of(v) : enclosing_->enclosing_memory(v);
  }
  // Whether v is a value of this trace or of one whose values this one reads.
  bool reads(const Value* v) const { return knows(v) || (enclosing_ && enclosing_->reads(v)); }

  // ---- memory and writes
  Value* now_of(Value* base);
  bool is_written_version(const Value* v) const {
    auto* cell = cells_.find(v);
    return cell && cell->version;
  }
  void check_written(Value* v) const;
  void check_names(const Operator& o, const Tensor& written) const;
  // Refuses writes that eager mode may refuse: to one of several views that a call gave, if the write is recorded, and to memory
  // that an operand of an elementwise call shares in part.
  void check_target(const Operator& o, Value* written, std::span<const op::Value> args, bool recording) const;
  void announce(const Tensor& t, Value* v);
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
  // True if a gradient could flow from here to one of the values `to`, through calls whose results have numbers from `first` on; or,
  // if there are none, to an input of the function.
  bool carries_gradient(const Value* of, std::span<const Value* const> to = {}, size_t first = 0) const;
  // The numbers of `value` with the history of `self`: a write that is not recorded leaves the history unchanged.
  Tensor with_history(const Tensor& self, const Tensor& value) {
    return is_differentiable(value.dtype()) ? invoke("_with_history", {self, without_history(value)}) : value;
  }

  static void note(const Tensor& t);

  void note_calls(size_t before);

  Graph* graph_;
  bool captures_;
  const Tracer* enclosing_ = nullptr;
  Lines lines_;
  const SourceLine* line_ = nullptr;  // of calls that are made on behalf of an earlier call
  std::unordered_map<const Node*, std::shared_ptr<const autograd::PackHook>> packs_;
  std::unordered_set<const Node*> in_place_;
  std::unordered_set<const Node*>
      apart_;  // calls that gave views which autograd takes for tensors of their own, as unsafe_split
  bool keeps_handles_ = false, has_history_ = false, has_written_ = false;
  std::vector<Tensor> handles_;
  std::unordered_set<const TensorImpl*> outside_handles_;
  std::vector<int>
      exchanged_;  // numbers of values whose handles were given others, which are no writes to their memory
  bool records_inside_ = false;  // gradients were enabled when the outermost of these calls began
  int inner_depth_ = 0;          // nesting of calls that are made on behalf of a call of the function
  int frozen_before_ = 0;        // values with smaller numbers are read as they are
  // Number of the first value of the custom function's backward that is being recorded; -1: none.
  int backward_begin_ = -1;
  std::vector<std::string>
      backward_names_;  // of the functions whose backward is being recorded, outermost first
  // By number: values of such backwards, which must not be read outside of them.
  std::vector<bool> ended_backward_;
  std::vector<std::pair<const Node*, Value*>> backward_reads_;
  // Data-dependent calls, whose results have a size that is known after they have run.
  std::vector<Node*> data_dependent_;
  Cells cells_;
};

}  // namespace facula::graph
