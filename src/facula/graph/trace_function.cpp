// Traces custom functions (autograd.Function): one call that refers to the graphs of their gradients (function.h).
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/graph/tracer.h"
#include "facula/op/registry.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"

namespace facula::graph {

namespace {

// The sizes of a gradient's graph as separate symbols: one for each size of an input that the other sizes do not
// determine.
class OwnSizes {
 public:
  explicit OwnSizes(const std::vector<Value*>& inputs) {
    for (bool symbols : {true, false})  // a symbol that the text of the call mentions needs no other name
      for (auto* v : inputs)
        for (auto s : v->tensor.sizes())
          if (s.is_symbolic() && s.is_symbol() == symbols && !sym::is_run_time(s) && !of(s)) {
            auto* n = s.node();
            own_[s.identity()] = shapes->fresh("s" + std::to_string(own_.size()), n->hint, n->low, n->high);
          }
  }
  // The size in these symbols, or none if they do not determine it before anything runs.
  std::optional<SymInt> of(SymInt s) const {
    bool determined = true;
    SymInt r = sym::rewrite(s, [&](SymInt x) -> std::optional<SymInt> {
      if (auto it = own_.find(x.identity()); it != own_.end()) return it->second;
      determined &= !x.is_symbol();
      return {};
    });
    return determined ? std::optional(r) : std::nullopt;
  }
  const std::shared_ptr<sym::Shapes> shapes = std::make_shared<sym::Shapes>();

 private:
  std::map<uint64_t, SymInt> own_;
};

// How often the backward of a function is traced within itself. One that calls the function again has gradients of every order, and
// each of them contains the next.
constexpr int kOrders = 3;

}  // namespace

void Tracer::enter(autograd::TracedFunction& f) {
  f.begun = graph_->nodes.size();
  for (auto& t : f.inputs) f.at_entry.push_back(handle(current_value(t)));
}

// The sets of arguments for which backward is traced: those that require gradients now, and those that may when the
// program is called.
std::vector<std::vector<bool>> Tracer::choices_of_needs(const autograd::TracedFunction& f) const {
  std::vector<bool> may = f.needs;
  for (size_t k = 0; k < may.size(); ++k) may[k] = may[k] || carries_gradient(value_of(f.at_entry[k]));
  auto any = [](auto& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); };
  std::vector<std::vector<bool>> choices;
  if (any(f.needs)) choices.push_back(f.needs);
  if (any(may) && may != f.needs) choices.push_back(may);
  return choices;
}

std::vector<Tensor> Tracer::function(autograd::TracedFunction& f) {
  auto needs = choices_of_needs(f);
  std::vector<Tensor> carried;  // the results of forward, unchanged
  std::vector<Value*> call_results;
  for (size_t k = 0; k < f.outputs.size(); ++k) {
    if (!f.outputs[k].defined() || !f.carries[k]) continue;
    carried.push_back(handle(current_value(f.outputs[k])));
    auto& t = carried.back();
    call_results.push_back(graph_->add_value(t.sizes(), t.strides(), t.dtype(), t.device()));
    hold(call_results.back()->tensor);
  }
  if (needs.empty() || call_results.empty()) {
    if (f.attach) f.attach(f.outputs);
    return f.outputs;
  }
  has_history_ = true;  // its forward records none
  Value* sizes = sizes_at(f.at_entry);
  op::Value args[] = {std::span<const Tensor>(f.at_entry), std::span<const Tensor>(carried),
                      std::span<const Tensor>()};
  Node& call =
      *graph_->add_node(operator_of({f.name, f.at_entry.size(), call_results.size()}), args, call_results);
  auto results = results_of(f, call, carried);
  take_gradients(f, call, needs, results, sizes);
  return results;
}

// A tensor with one element of memory whose sizes are the symbols in the inputs' sizes, for a backward that only
// keeps sizes. Null if there are no symbols.
Value* Tracer::sizes_at(const std::vector<Tensor>& inputs) {
  std::set<size_t> symbols;
  for (auto& t : inputs)
    for (auto s : t.sizes()) sym::each_symbol(s, [&](size_t k) { symbols.insert(k); });
  Dims sizes;
  for (size_t k : symbols)
    if (auto s = graph_->shapes->symbol(int(k)); !sym::is_run_time(s)) sizes.push_back(s);
  if (sizes.empty()) return nullptr;
  Tensor one = autograd::invoke("zeros", {SymSpan(), DType::Bool});
  return value_of(autograd::invoke("expand", {one, SymSpan(sizes)}));
}

// The results for the caller: those of forward, with the call as their history.
std::vector<Tensor> Tracer::results_of(autograd::TracedFunction& f, const Node& call,
                                       const std::vector<Tensor>& carried) {
  auto is_input = [&](const Tensor& t) {
    return std::any_of(f.inputs.begin(), f.inputs.end(), [&](auto& x) { return x.is_same(t); });
  };
  std::vector<Value*> memory;
  for (auto& t : f.outputs) memory.push_back(t.defined() ? first_of(current_value(t)) : nullptr);
  auto results = f.outputs;
  for (size_t k = 0, m = 0; k < results.size(); ++k) {
    Tensor& t = results[k];
    if (!t.defined()) continue;
    if (!f.carries[k]) {
      if (f.dirty[k] || !is_differentiable(t.dtype())) continue;
      Value* v = value_of(without_history(handle(current_value(t))));
      if (is_input(t) || !t.is_traced()) t = handle(v);
      else t.impl()->traced = v;
      continue;
    }
    Value* result = call.results[m];
    Value* original = value_of(carried[m++]);
    if (f.dirty[k]) {
      if (!t.is_traced()) t = handle(current_value(t));
      else t.impl()->traced = current_value(t);
      write(*call.op, t, handle(result), 0, Written::recorded);
    } else {
      bool fresh = memory[k]->producer && memory[k]->producer->id >= int(f.begun) &&
                   std::count(memory.begin(), memory.end(), memory[k]) == 1;
      if (!fresh) cells_.of(result).alias_of = original;
      if (is_input(t) || !t.is_traced() || t.requires_grad()) t = handle(result);
      else t.impl()->traced = result;
    }
    t.impl()->requires_grad |= std::find(f.needs.begin(), f.needs.end(), true) != f.needs.end();
  }
  return results;
}

// Traces backward for each set of gradients that it may be asked for, and gives the call an operator that has them.
void Tracer::take_gradients(autograd::TracedFunction& f, Node& call,
                            const std::vector<std::vector<bool>>& needs, const std::vector<Tensor>& attached,
                            Value* sizes) {
  constexpr size_t kAllChoices = 3;  // for more results: all of them, and each one alone
  size_t results = call.results.size();
  std::vector<std::vector<bool>> defined{std::vector<bool>(results, true)};
  if (!f.materialize && results > 1) {
    for (size_t bits = 1; results <= kAllChoices && bits + 1 < size_t(1) << results; ++bits) {
      defined.emplace_back();
      for (size_t k = 0; k < results; ++k) defined.back().push_back(bits >> k & 1);
    }
    for (size_t k = 0; results > kAllChoices && k < results; ++k) {
      defined.emplace_back(results);
      defined.back()[k] = true;
    }
  }
  std::unordered_set<const Value*> saved;
  for (auto& t : f.attach(attached))
    if (t.defined()) saved.insert(current_value(t));
  // By result; if it is an input that was written, the new contents of its memory.
  std::vector<Value*> outputs;
  for (size_t k = 0; k < attached.size(); ++k)
    if (attached[k].defined() && f.carries[k]) outputs.push_back(value_of(attached[k]));
  std::vector<Recorded> all;
  for (auto& n : needs)
    for (auto& g : defined) all.push_back(record_backward(f, call, n, g));
  auto reads = reads_of(all, outputs);
  if (sizes && std::ranges::any_of(all, [&](auto& r) { return !has_sizes(r, reads, outputs); }))
    reads.push_back(sizes);
  UserFunction function{f.name, f.at_entry.size(), results, reads.size(), f.materialize};
  for (auto& r : all) {
    if (r.gradient.refused.empty()) set_graph(r, reads, outputs, f.begun);
    function.gradients.push_back(std::move(r.gradient));
  }
  std::vector<Tensor> operands = call.args.tensors(), read;
  for (auto* v : reads) {
    trace_check(!v->producer || v->producer->id < call.id, custom_function, f.name)
        << "has a backward that reads a view of an input that it writes" << hint("clone() the input");
    read.push_back(v->tensor);
    if (!saved.count(v) && !in_backward()) backward_reads_.emplace_back(&call, v);
  }
  call.op = &operator_of(std::move(function));
  op::Value args[] = {std::span<const Tensor>(operands).first(f.at_entry.size()),
                      std::span<const Tensor>(operands).subspan(f.at_entry.size()),
                      std::span<const Tensor>(read)};
  call.args = op::Args(args, call.op->schema);
}

Tracer::Recorded Tracer::record_backward(autograd::TracedFunction& f, const Node& call,
                                         std::vector<bool> needs, std::vector<bool> defined) {
  struct Region {
    Region(int& first, int begin) : of(first), outer(std::exchange(first, begin)) {}
    ~Region() { of = outer; }
    int &of, outer;
  };
  struct Named {
    Named(std::vector<std::string>& all, const std::string& name) : names(all) { names.push_back(name); }
    ~Named() { names.pop_back(); }
    std::vector<std::string>& names;
  };
  Recorded r{{std::move(needs), std::move(defined), nullptr}};
  if (std::ranges::count(backward_names_, f.name) >= kOrders) {
    r.gradient.refused = "its backward calls it again, and gradients of more than " +
                         std::to_string(kOrders) + " orders are not traced";
    r.gradient.type = ErrorType::NotImplementedError;
    return r;
  }
  auto& nodes = graph_->nodes;
  size_t begin = nodes.size(), first = graph_->values().size();
  std::vector<Tensor> grads(f.outputs.size());
  for (size_t k = 0, m = 0; k < grads.size(); ++k) {
    if (!f.outputs[k].defined() || !f.carries[k]) continue;
    auto& t = call.results[m]->tensor;
    if (!r.gradient.defined[m++]) continue;
    r.grads.push_back(graph_->add_value(t.sizes(), contiguous_strides(t.sizes()), t.dtype(), t.device()));
    hold(r.grads.back()->tensor);
    grads[k] = handle(r.grads.back());
    grads[k].impl()->requires_grad = true;
  }
  try {
    Region dormant(backward_begin_, int(first));
    Named named(backward_names_, f.name);
    At here(call.place);
    op::Mode::With on(this);
    autograd::GradMode history(true);
    for (auto& t : f.backward(std::move(grads), r.gradient.needs))
      r.input_grads.push_back(t.defined() ? current_value(t) : nullptr);
    internal_check(r.input_grads.size() == f.at_entry.size()) << f.name;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal || e.type() == ErrorType::KeyboardInterrupt) throw;
    r.gradient.refused = e.what();
    r.gradient.type = e.type();
  }
  for (size_t k = begin; k < nodes.size(); ++k) {
    if (nodes[k]->op->effects.draws) r.gradient.refused = "it draws random numbers";
    r.calls.push_back(std::move(nodes[k]));
  }
  nodes.resize(begin);
  ended_backward_.resize(graph_->values().size());
  for (size_t k = first; k < ended_backward_.size(); ++k)
    ended_backward_[k] = !graph_->values()[k]->constant.defined();
  return r;
}

// The values that the backwards read and that exist already.
std::vector<Value*> Tracer::reads_of(const std::vector<Recorded>& all, const std::vector<Value*>& results) {
  std::vector<Value*> reads;
  std::unordered_set<const Value*> seen(results.begin(), results.end());
  for (auto& r : all) {
    if (!r.gradient.refused.empty()) continue;
    seen.insert(r.grads.begin(), r.grads.end());
    auto read = [&](Value* v) {
      bool number = v && v->constant.defined() && v->constant.impl()->wrapped_number;
      if (v && !number && seen.insert(v).second) reads.push_back(v);
    };
    for (auto& n : r.calls) {
      for (auto* v : operands(*n)) read(v);
      seen.insert(n->results.begin(), n->results.end());
    }
    for (auto* v : r.input_grads) read(v);
  }
  return reads;
}

std::vector<Value*> Tracer::inputs_of(const Recorded& r, const std::vector<Value*>& reads,
                                      const std::vector<Value*>& results) {
  std::vector<Value*> inputs = reads;
  inputs.insert(inputs.end(), results.begin(), results.end());
  inputs.insert(inputs.end(), r.grads.begin(), r.grads.end());
  return inputs;
}

// True if the tensors that it gets determine all sizes that it needs.
bool Tracer::has_sizes(const Recorded& r, const std::vector<Value*>& reads,
                       const std::vector<Value*>& results) {
  OwnSizes own(inputs_of(r, reads, results));
  bool determined = true;
  for (auto& n : r.calls) n->args.each_size([&](SymInt& x) { determined &= own.of(x).has_value(); });
  return determined;
}

void Tracer::set_graph(Recorded& r, const std::vector<Value*>& reads, const std::vector<Value*>& results,
                       size_t first_node) {
  auto inputs = inputs_of(r, reads, results);
  OwnSizes own(inputs);
  std::vector<InputSpec> specs;
  bool determined = true;
  auto take = [&](SymInt& x) {
    auto mine = own.of(x);
    determined &= mine.has_value();
    x = mine.value_or(x);
  };
  for (auto* v : inputs) {
    auto& spec = specs.emplace_back(spec_of(v->tensor));
    for (auto* all : {&spec.sizes, &spec.strides})
      for (auto& x : *all) take(x);
  }
  for (auto& n : r.calls) n->args.each_size([&](SymInt& x) { determined &= own.of(x).has_value(); });
  if (!determined) {
    r.gradient.refused = "it needs a size that no tensor has which it reads; trace without dynamic=True";
    r.gradient.type = ErrorType::NotImplementedError;
    return;
  }
  auto calls = [&](std::span<const Tensor> arguments) {
    std::unordered_map<const Value*, Tensor> at;
    for (size_t k = 0; k < arguments.size(); ++k) {
      auto* v = inputs[k];
      // Intermediates of forward have no history.
      bool intermediate = k < reads.size() && v->producer && v->producer->id >= int(first_node);
      at[v] = intermediate ? autograd::invoke("detach", {arguments[k]}) : arguments[k];
    }
    auto value = [&](Value* v) { return v->constant.defined() && !at.count(v) ? v->constant : at.at(v); };
    for (auto& n : r.calls) {
      op::Args args = n->args.clone();
      args.each_tensor([&](size_t, Tensor& t) {
        if (t.defined()) t = value(value_of(t));
      });
      args.each_size([&](SymInt& s) { s = *own.of(s); });
      auto results = op::call(*n->op, args.values());
      for (size_t k = 0; k < n->results.size(); ++k) at[n->results[k]] = results[k];
    }
    std::vector<Tensor> gradients;
    for (auto* v : r.input_grads) gradients.push_back(v ? value(v) : Tensor());
    return gradients;
  };
  KeepRules keep;
  At nowhere({});
  auto graph = std::make_shared<Graph>(traced(own.shapes, specs, calls, nullptr));
  graph->renumber();
  r.gradient.graph = std::move(graph);
}

// Calls of custom functions whose backward reads, other than by save_for_backward, something that was written since.
std::vector<const Node*> Tracer::outdated() {
  std::vector<const Node*> nodes;
  for (auto& [node, v] : backward_reads_)
    if (current(v) != v) nodes.push_back(node);
  return nodes;
}

void Tracer::check_outdated(const Node& n) {
  trace_check(false, custom_function, n.op->name())
      << "has a backward that reads a tensor which is written behind the call"
      << hint("save_for_backward() it");
}

}  // namespace facula::graph
