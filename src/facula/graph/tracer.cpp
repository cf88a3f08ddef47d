#include "facula/graph/tracer.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/autograd/formula.h"
#include "facula/base/warning.h"
#include "facula/graph/passes.h"
#include "facula/op/call.h"
#include "facula/op/factory.h"
#include "facula/op/foreign.h"
#include "facula/op/key.h"
#include "facula/op/registry.h"
#include "facula/op/views.h"
#include "facula/op/written.h"
#include "facula/sym/one_sided.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"
#include "facula/tensor/observe.h"

namespace facula::graph {

bool has_layout_of(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.sizes(), b.sizes(), SymInt::surely_equal) &&
         std::ranges::equal(a.strides(), b.strides(), SymInt::surely_equal);
}

Tensor handle(Value* v) {
  auto& t = v->tensor;
  Tensor h(
      make_ref<TensorImpl>(Storage(), Dims(t.sizes()), Dims(t.strides()), SymInt(), t.dtype(), t.device()));
  h.impl()->traced = v;
  h.impl()->wrapped_number = t.impl()->wrapped_number;
  return h;
}

// Replaces a result that is an operand itself, as of contiguous(), by the function's own tensor. `operands`: pairs of
// the tensor that the call saw and the function's own one.
static bool handed_back(Tensor& result, std::span<const std::pair<Tensor, Tensor>> operands) {
  for (auto& [seen, own] : operands)
    if (result.is_same(seen)) {
      result = own;
      return true;
    }
  return false;
}

[[noreturn]] static void refuse_read(const Operator& o) {
  trace_runtime_check(false, reads_elements, o.name())
      << "looks at the elements of a tensor, which a traced function has not yet"
      << hint("compute what depends on elements outside of the function, or with where()");
  __builtin_unreachable();
}

// A procedure may only look at the sizes of its calls, and a data-dependent call has a size; a graph can hold both.
static bool reads_only_sizes(const Operator& o) { return o.is<op::Procedure>() || o.is<op::DataDependent>(); }

// For destinations of another dtype than the result's, reductions refuse some and compute wider for others; a pointwise operator
// computes the same.
static void check_out(const Operator& o, const Results& results, std::span<const op::Value> args,
                      std::span<const Tensor> out) {
  runtime_check(out.size() == results.size(), o.name())
      << "expected an out= argument of " << results.size() << " tensors, but got " << out.size();
  for (size_t k = 0; k < out.size(); ++k)
    if (o.is<op::Pointwise>()) op::check_conversion(o, results[k].dtype(), out[k].dtype(), args, true);
    else
      trace_check(out[k].dtype() == results[k].dtype(), mode, o.name())
          << "writes a result of " << results[k].dtype() << " to out= of " << out[k].dtype()
          << hint("let out= have the dtype of the result");
}

// Programs run on the CPU: refuses calls whose operands or results are elsewhere.
static void check_devices(const Operator& o, std::span<const op::Value> args, std::span<const Tensor> out) {
  Device elsewhere{};
  bool has_tensors = false;
  auto look = [&](Device d) {
    if (d.type != DeviceType::cpu) elsewhere = d;
  };
  for (auto& v : args)
    if (v.tag == op::Tag::device) {
      op::check_can_hold(o.name(), v.device);
      look(v.device);
    }
  op::any_tensor(args, [&](const TensorImpl* t) {
    has_tensors |= t != nullptr;
    if (t) look(t->device);
    return false;
  });
  for (auto& t : out) look(t.device());
  if (!has_tensors) look(default_device());
  trace_check(elsewhere.type == DeviceType::cpu, mode, o.name())
      << "works on the device " << to_string(elsewhere) << ", and a traced program runs on the CPU"
      << hint("call it outside of the traced function");
}

// Raises where an eager call would, before anything is recorded: for tensors from outside that may not be written, and for
// devices.
static void check_arguments(const Operator& o, std::span<const op::Value> args, Form form,
                            std::span<const Tensor> out) {
  check_devices(o, args, out);
  for (size_t k = 0; k < args.size(); ++k)
    if (o.schema.parameters[k].written && args[k].tag == op::Tag::tensors)
      for (auto* t : args[k].tensors())
        if (t && !t->traced)
          autograd::check_in_place(o.name(), Tensor(Ref<TensorImpl>::share(t)),
                                   t->requires_grad && o.differentiable && autograd::grad_enabled());
  if (form == Form::functional) return;
  bool history = false;
  op::any_tensor(args, [&](const TensorImpl* t) { return history |= t && t->requires_grad; });
  bool recording = history && o.differentiable && autograd::grad_enabled();
  if (form == Form::in_place && !args[0].tensor->traced)
    autograd::check_in_place(o.name(), Tensor(Ref<TensorImpl>::share(args[0].tensor)), recording);
  if (autograd::grad_enabled()) op::check_out_without_gradients(o.name(), out, recording);
}

static void check_destinations(const Operator& o, const Results& results, std::span<const op::Value> args,
                               Form form, std::span<const Tensor> out) {
  if (form == Form::out) return check_out(o, results, args, out);
  auto* procedure = o.as<op::Procedure>();
  if (o.is<op::View>() || (procedure && procedure->in_place)) return;  // these convert by rules of their own
  op::check_conversion(o, results[0].dtype(), args[0].tensor->dtype, args, false);
}

// The history of a tensor after a recorded write of result `k`.
Tracer::Written Tracer::history_after(const Operator& o, size_t k) {
  return o.differentiable && o.carries_gradient(k) ? Written::recorded : Written::ended;
}

// Remembers the line of the calls from `before` on, and what saved-tensor hooks do to their operands.
void Tracer::note_calls(size_t before) {
  auto& nodes = graph_->nodes;
  if (before >= nodes.size()) return;
  SourceLine line = Break::current_line();
  for (size_t k = before; line && k < nodes.size(); ++k) lines_[nodes[k].get()] = line;
  auto* pack = autograd::saved_hook();
  if (!pack || !autograd::grad_enabled()) return;
  auto shared = std::make_shared<const autograd::PackHook>(*pack);
  for (size_t k = before; k < nodes.size(); ++k) packs_[nodes[k].get()] = shared;
}

Results Tracer::take(const Operator& o, std::span<const op::Value> args, Form form,
                     std::span<const Tensor> out) {
  if (form == Form::out && o.forms.for_out) {  // the dtype of out= may decide in which dtype it is computed
    DType computed = o.forms.for_out(op::Call(o, args), out);
    if (args[0].tensor->dtype != computed) {
      std::vector<op::Value> converted(args.begin(), args.end());
      op::Value operands[] = {args[0], computed};
      Tensor self = op::call(op::get("to_dtype"), operands)[0];
      converted[0] = op::Value(self);
      return take(o, converted, form, out);
    }
  }
  if (!captures_ || inner_depth_) return take_call(o, args, form, out);
  size_t before = graph_->nodes.size();
  check_arguments(o, args, form, out);
  Results results = take_call(o, args, form, out);
  note_calls(before);
  for (auto& t : results.all()) {
    if (t.defined()) hold(t);
    keep(t);
  }
  return results;
}

// Replaces the operands by their current values. Gives the values of those that require gradients.
std::vector<const Value*> Tracer::take_operands(const Operator& o, op::Args& args,
                                                std::vector<std::pair<Tensor, Tensor>>& operands) {
  std::vector<const Value*> with_history;
  args.each_tensor([&](size_t, Tensor& t) {
    if (!t.defined()) return;
    bool history = t.requires_grad();
    auto* cell = cells_.any_history() ? cells_.find(cells_.first_of(recorded_value(t))) : nullptr;
    history |= cell && cell->has_history;
    Tensor own = t;
    if (is_own(t)) t.impl()->traced = current(value_of(t));
    else t = handle(current(constant(t)));
    if (history) with_history.push_back(value_of(t));
    if (o.is<op::Procedure>()) operands.emplace_back(t, std::move(own));
  });
  return with_history;
}

static bool gives_views(const Operator& o) {
  return o.is<op::View>() || (!o.schema.returns.empty() && o.schema.returns[0].alias);
}

// Whether eager mode has a node for each call of the body, or for each item of a list, so that some results may have no history.
static bool has_parts(const Operator& o, std::span<const op::Value> args) {
  return (o.is<op::Procedure>() && !o.vjp) ||
         std::ranges::any_of(args, [](auto& v) { return v.tag == op::Tag::tensors; });
}

Results Tracer::take_call(const Operator& o, std::span<const op::Value> args, Form form,
                          std::span<const Tensor> out) {
  std::optional<sym::Comparing> comparing;
  if (captures_) comparing.emplace(o.name(), sym::Comparing::raises);
  if (captures_ && o.effects.reads_data && (in_backward() || !reads_only_sizes(o))) refuse_read(o);
  op::Args owned(args, o.schema);
  std::vector<std::pair<Tensor, Tensor>> operands;  // as the call sees them, and as the function has them
  size_t first = graph_->values().size();
  auto active = take_operands(o, owned, operands);
  bool history = !active.empty();
  auto values = owned.values();
  bool recording = captures_ && history && o.differentiable && autograd::grad_enabled();
  bool recorded = !captures_ || autograd::grad_enabled() || (inner_depth_ && !records_inside_);
  bool writes_history = !captures_ || autograd::grad_enabled();
  has_history_ |= writes_history;
  // The inputs of an open trace always require gradients as these do; those of other programs, and of inner calls, may differ.
  bool ends_history = !recorded && (history || inner_depth_ || !keeps_handles_);
  history &= (recorded || gives_views(o)) && captures_ && !inner_depth_ && o.differentiable;
  auto require = [&](const Tensor& t, size_t k) {
    if (!history || !t.defined() || !is_differentiable(t.dtype()) || !o.carries_gradient(k)) return;
    if (!has_parts(o, args) || carries_gradient(value_of(t), active, first)) t.impl()->requires_grad = true;
  };
  size_t before = graph_->nodes.size();
  auto* foreign = o.as<op::Foreign>();
  if (foreign && o.effects.writes && !foreign->functions->is_composite())
    return writing(o, values, before, writes_history);
  bool calls = o.calls() || (foreign && foreign->functions->is_composite());
  Results results = calls ? inlined(o, values) : record(o, values);
  if (o.is<op::View>()) check_views(results);
  if (captures_ && op::gives_separate_parts(o))
    for (auto& t : results.all()) apart_.insert(value_of(t)->producer);
  if (form == Form::functional) {
    for (size_t k = 0; k < results.size(); ++k) {
      if (!results[k].defined() || handed_back(results[k], operands)) continue;
      if (ends_history) results[k] = without_history(results[k]);
      require(results[k], k);
    }
    return results;
  }
  if (captures_) check_destinations(o, results, values, form, out);
  for (size_t k = before; keeps_handles_ && form == Form::in_place && k < graph_->nodes.size(); ++k)
    in_place_.insert(graph_->nodes[k].get());
  for (size_t k = 0; k < (form == Form::in_place ? 1 : out.size()); ++k) {
    Tensor target = form == Form::in_place ? Tensor(Ref<TensorImpl>::share(values[0].tensor)) : out[k];
    if (form == Form::in_place && o.is<op::View>()) {
      show_as(o, target, results[0], args[0]);
      require(target, 0);
      return Results(target);
    }
    if (!is_own(target)) target = handle(current(constant(target)));
    else target.impl()->traced = current(value_of(target));
    if (captures_) check_target(o, value_of(target), values, recording);
    if (form != Form::out || !resized(o, target, results[k]))
      write(o, target, results[k], before, !writes_history ? Written::unrecorded : history_after(o, k));
    require(target, k);
    if (target.requires_grad()) cells_.give_history(cells_.of(cells_.first_of(value_of(target))));
    results[k] = target;
  }
  return results;
}

void Tracer::computes_view(const Tensor& result, const Tensor& of) {
  // Calls for gradients do not write the function's tensors; a call that remains one node has no views of its
  // operands.
  if (frozen_before_ || backward_begin_ >= 0 || op::Mode::current() != this) return;
  auto cell = [&](const Tensor& t) -> Cell& { return cells_.of(cells_.first_of(recorded_value(t))); };
  auto* refused = sym::Refused::current();  // the result is a view of `of` only for other sizes
  cells_.join(cell(of), cell(result), refused ? refused->guards() : std::vector<sym::Guard>());
}

void Tracer::check_written(Value* v) const {
  auto* cell = cells_.find(cells_.first_of(v));
  trace_check(!cell || !cell->stale, alias, "trace")
      << "of a function that reads a tensor of shape " << to_string(v->tensor.sizes())
      << " whose memory it has written through another one, which a trace cannot record: conj() computes here, and "
         "reshape() by sizes that are known only later copies"
      << hint("resolve_conj() or clone() what is written first");
}

static thread_local Tracer* observing = nullptr;
static thread_local std::vector<Capture::Read>* noted = nullptr;

Tracer::Observed::Observed(Tracer* t, std::vector<Capture::Read>* into)
    : outer(std::exchange(observing, t)), outer_into(std::exchange(noted, into)) {
  read_observer = t ? &Tracer::note : nullptr;
}

Tracer::Observed::~Observed() {
  observing = outer;
  noted = outer_into;
  read_observer = outer ? &Tracer::note : nullptr;
}

void Tracer::note(const Tensor& t) {
  if (!op::Mode::current()) return;  // not part of the function
  if (t.is_traced() || t.impl()->wrapped_number || t.device().type != DeviceType::cpu) return;
  trace_runtime_check(!observing->cells_.is_written(t), reads_elements, "trace")
      << "of a function that looks at the elements of a tensor, which it has written to and are not computed yet"
      << hint("compute what depends on elements outside of the function, or with where()");
  // Later calls of a compiled function may pass another tensor.
  trace_runtime_check(!observing->keeps_handles(), reads_elements, "compile")
      << "takes a tensor, of shape " << to_string(t.sizes())
      << ", for a number or a size, and looks at its elements"
      << hint("pass a number, or compute with the tensor: x.index_select(0, i), x * t");
  for (auto& r : *noted)
    if (r.tensor.is_same(t)) return;
  noted->push_back({t, elements_of(t)});
}

Value* Tracer::constant(const Tensor& t) {
  if (auto* value = cells_.outside(t)) return value;
  internal_check(!is_own(t)) << "a value of this trace";
  trace_runtime_check(!t.is_traced() || !any_symbolic(t.sizes()), dead_handle, "trace")
      << "of a function reads a tensor that the surrounding function computes, whose sizes "
      << to_string(t.sizes()) << " are not fixed" << hint("pass it among the operands");
  auto* value = graph_->add_constant(t);
  if (captures_) hold(value->tensor);
  announce(t, value);
  return value;
}

Value* Tracer::outside(const Tensor& t, const InputSpec& spec) {
  if (auto* value = cells_.outside(t)) return value;
  auto* value = graph_->add_value(spec.sizes,
                                  spec.strides.size() == spec.sizes.size() ? spec.strides
                                                                           : contiguous_strides(spec.sizes),
                                  spec.dtype, t.device());
  value->tensor.impl()->wrapped_number = spec.number;
  value->constant = t;
  hold(value->tensor);
  announce(t, value);
  return value;
}

void Tracer::announce(const Tensor& t, Value* v) {
  auto* other = captures_ ? cells_.other_name(t, true) : nullptr;
  trace_runtime_check(!other, alias, "trace")
      << "of a function that writes to a captured tensor of shape " << to_string(other->sizes())
      << " whose memory it also reads as another tensor, of shape " << to_string(t.sizes())
      << hint("make the view inside of the function");
  cells_.add_outside(t, v);
}

void Tracer::check_names(const Tensor& written, std::span<const Tensor> outside) const {
  if (!written.is_traced()) return;
  auto* memory = enclosing_memory(value_of(written));
  for (auto& other : outside)
    trace_runtime_check(other.is_same(written) || !other.is_traced() ||
                            enclosing_memory(value_of(other)) != memory,
                        alias, "trace")
        << "of a function that writes to a tensor of the surrounding function, of shape "
        << to_string(written.sizes()) << ", whose memory it also reads as another tensor, of shape "
        << to_string(other.sizes()) << hint("make the view inside of the function");
}

Tensor Tracer::without_history(const Tensor& t) {
  if (!is_differentiable(t.dtype())) return t;
  op::Value args[] = {t};
  return record(op::get("detach"), args)[0];
}

// True if the scalar operands are numbers or sizes, and not elements of tensors.
static bool has_numbers_alone(const Operator& o, std::span<const op::Value> values) {
  auto& parameters = o.schema.parameters;
  for (size_t k = 0; k < parameters.size(); ++k)
    if (parameters[k].is_number_operand() && values[k].tag == op::Tag::tensor) return false;
  return true;
}

Results Tracer::inlined(const Operator& o, std::span<const op::Value> values) {
  if (captures_ && o.check && has_numbers_alone(o, values)) o.check(op::Call(o, values));
  auto rules = KeepRules::now();
  if (o.vjp && o.calls() && rules == KeepRules::all)
    if (auto node = one_node(o, values)) return *node;
  Inside here(this);
  KeepRules within(rules && o.is<op::Composite>() ? KeepRules::all : rules);
  if (auto* foreign = o.as<op::Foreign>()) {
    op::Mode::With on(this);
    return foreign->functions->run(op::Call(o, values));
  }
  try {
    return (*o.calls())(op::Call(o, values));
  } catch (const Error& e) {  // it looks at more than sizes
    if (captures_ && o.effects.reads_data && e.op() == "data_ptr") refuse_read(o);
    throw;
  }
}

Results Tracer::writing(const Operator& o, std::span<const op::Value> values, size_t before, bool recorded) {
  Results all = record(op::functional_form(o), values), results;
  std::vector<Tensor> targets = op::written_tensors(op::Call(o, values));
  size_t count = all.size() - targets.size();
  for (size_t k = 0; k < count; ++k) results.push_back(all[k]);
  for (size_t k = 0; k < targets.size(); ++k) {
    targets[k].impl()->traced = current(value_of(targets[k]));
    write(o, targets[k], all[count + k], before, recorded ? Written::recorded : Written::unrecorded);
  }
  return results;
}

std::optional<Results> Tracer::one_node(const Operator& o, std::span<const op::Value> values) {
  op::Args args(values, o.schema);
  std::vector<InputSpec> specs;
  args.each_tensor([&](size_t, Tensor& t) {
    if (t.defined()) specs.push_back(spec_of(t));
  });
  auto call = [&](std::span<const Tensor> operands) {
    size_t k = 0;
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = operands[k++];
    });
    KeepRules off(KeepRules::none);
    sym::Comparing comparing(o.name(),
                             sym::Comparing::assumes);  // the body is called again when the sizes are known
    return op::call(o, args.values()).to_vector();
  };
  Graph calls = traced(graph_->shapes, specs, call, nullptr);
  if (!calls.mutated.empty()) return {};
  std::vector<Value*> values_of_results;
  for (auto* v : calls.outputs) {
    if (!v) return {};
    auto& t = v->tensor;
    values_of_results.push_back(graph_->add_value(t.sizes(), t.strides(), t.dtype(), t.device()));
  }
  graph_->add_node(o, values, values_of_results);
  Results results;
  for (auto* v : values_of_results) results.push_back(handle(v));
  return results;
}

bool Tracer::carries_gradient(const Value* of, std::span<const Value* const> to, size_t first) const {
  std::unordered_set<const Value*> seen;
  std::vector<const Value*> todo{of};
  while (!todo.empty()) {
    auto* v = todo.back();
    todo.pop_back();
    if (!v || !is_differentiable(v->tensor.dtype()) || !seen.insert(v).second) continue;
    if (std::ranges::find(to, v) != to.end()) return true;
    if (!v->producer && to.empty() && (!v->constant.defined() || v->constant.requires_grad())) return true;
    if (!v->producer || size_t(v->id) < first || !v->producer->op->carries_gradient(size_t(v->result)))
      continue;
    auto read = operands(*v->producer);
    todo.insert(todo.end(), read.begin(), read.end());
  }
  return false;
}

Results Tracer::record(const Operator& o, std::span<const op::Value> values) {
  if (o.check && has_numbers_alone(o, values)) {
    WarningsOff off(!captures_);  // the call that is being traced has warned already
    o.check(op::Call(o, values));
  }
  trace_runtime_check(!o.schema.mutates(), memory, o.name())
      << "writes to its arguments, which a trace cannot record";
  runtime_check(int64_t(graph_->nodes.size()) < op::CallLimit::now(), o.name())
      << "is the last of " << graph_->nodes.size() << " calls, and no more are traced here";
  bool cuts = o.is<op::DataDependent>() && (captures_ || DeclaredSize::now());
  if (cuts && captures_)
    if (Node* same = equal_call(o, values)) return results_of(*same);
  std::vector<Value*> result_values;
  for (auto& m : metas_of(o, values, cuts)) {
    bool is_negative =
        std::ranges::any_of(m.sizes, [](SymInt n) { return !n.is_symbolic() && n.concrete() < 0; });
    bool fits = any_symbolic(m.sizes) || is_countable(m.sizes);
    trace_runtime_check(!captures_ || (fits && !is_negative), memory, o.name())
        << "gives a tensor of shape " << to_string(SymSpan(m.sizes)) << ", which no memory can hold";
    runtime_check(!op::CallLimit::lives() || is_countable(m.sizes), o.name())
        << "gives a tensor of shape " << to_string(SymSpan(m.sizes)) << ", which has too many elements";
    result_values.push_back(
        graph_->add_value(m.sizes,
                          m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes),
                          m.dtype, m.device));
  }
  Node* n = graph_->add_node(o, values, result_values);
  if (line_ && *line_) lines_[n] = *line_;
  if (cuts) data_dependent_.push_back(n);
  return results_of(*n);
}

Results Tracer::results_of(const Node& n) {
  Results results;
  for (auto* v : n.results) results.push_back(handle(v));
  return results;
}

// Applies the rules to operands whose sizes are only known when the program runs. interpret() checks the results
// again with the actual sizes.
std::vector<op::Meta> Tracer::metas_of(const Operator& o, std::span<const op::Value> values, bool cuts) {
  sym::Comparing comparing(o.name(), sym::Comparing::assumes);
  auto metas = infer(o, values);
  if (captures_ && sym::Comparing::assumed()) check_small_sizes(o, values, metas);
  if (!cuts) return metas;
  SymInt most = metas[0].sizes[0];
  int64_t high = most.is_symbolic() ? most.node()->high : most.concrete();
  auto* declared = DeclaredSize::now();
  bool fits = declared && sym::is_run_time(*declared) && declared->is_symbol() &&
              declared->node()->low == 0 && declared->node()->high == high;
  SymInt size = fits ? *declared : sym::run_time_size(*graph_->shapes, high);
  for (auto& m : metas) {
    m.sizes[0] = size;
    m.strides = contiguous_strides(m.sizes);
  }
  return metas;
}

// Checks that the shapes which rules gave for a run-time size of 2 or more are right for 0 and 1 as well. If the
// rules raise for such a size, the program raises when it occurs.
void Tracer::check_small_sizes(const Operator& o, std::span<const op::Value> values,
                               const std::vector<op::Meta>& metas) const {
  op::Args original(values, o.schema);
  std::set<size_t> symbols;
  auto look = [&](SymInt s) {
    if (sym::is_run_time(s)) sym::each_symbol(s, [&](size_t k) { symbols.insert(k); });
  };
  original.each_tensor([&](size_t, Tensor& t) {
    if (t.defined()) std::ranges::for_each(t.sizes(), look);
  });
  original.each_size(look);
  for (size_t k : symbols)
    for (int64_t count = 0; count < 2; ++count) {
      auto size = graph_->shapes->symbol(int(k));
      if (!sym::is_run_time(size) || size.node()->high < count) continue;
      std::vector<SymInt> replacements;
      for (int i = 0; i < graph_->shapes->symbol_count(); ++i)
        replacements.push_back(graph_->shapes->symbol(i));
      replacements[k] = count;
      auto now = [&](SymSpan all) {
        Dims of(all);
        for (auto& s : of) s = sym::substitute(s, replacements);
        return of;
      };
      op::Args args = original.clone();
      std::vector<op::Meta> actual;
      try {
        args.each_tensor([&](size_t, Tensor& t) {
          if (!t.defined()) return;
          bool number = t.impl()->wrapped_number;
          t = Tensor(make_ref<TensorImpl>(Storage(), now(t.sizes()), now(t.strides()), SymInt(), t.dtype(),
                                          t.device()));
          t.impl()->wrapped_number = number;
        });
        args.each_size([&](SymInt& s) { s = sym::substitute(s, replacements); });
        actual = infer(o, args.values());
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::internal) throw;
        continue;
      }
      for (size_t r = 0; r < metas.size(); ++r) {
        Dims expected = now(metas[r].sizes);
        trace_runtime_check(std::ranges::equal(actual[r].sizes, expected, SymInt::surely_equal), unknown_size,
                            o.name())
            << "gives a tensor of shape " << to_string(SymSpan(actual[r].sizes)) << " if the size " << size
            << " is " << count << ", and of shape " << to_string(SymSpan(metas[r].sizes)) << " else, and "
            << size << ", from 0 to " << size.node()->high
            << ", is known only when the program has run what picks the elements"
            << hint("say which shape it is, as by squeeze(dim), unsqueeze(dim) or expand(sizes)");
      }
    }
}

// An earlier data-dependent call with equal operands, so that equal sizes are known to be equal.
Node* Tracer::equal_call(const Operator& o, std::span<const op::Value> values) {
  constexpr int kMost = 64;
  op::Args args(values, o.schema);
  for (auto* n : data_dependent_)
    if (int left = kMost; n->op == &o && equal_arguments(args, n->args, left)) return n;
  return nullptr;
}

bool Tracer::equal_arguments(const op::Args& a, const op::Args& b, int& left) {
  op::Words x, y;
  op::append_attributes(x, a.values());
  op::append_attributes(y, b.values());
  auto &s = a.tensors(), &t = b.tensors();
  bool equal = x == y && s.size() == t.size();
  for (size_t k = 0; equal && k < s.size(); ++k) equal = equal_values(value_of(s[k]), value_of(t[k]), left);
  return equal;
}

bool Tracer::equal_values(const Value* a, const Value* b, int& left) {
  if (a == b) return true;
  if (!a || !b || !a->producer || !b->producer || a->result != b->result || --left < 0) return false;
  auto &m = *a->producer, &n = *b->producer;
  return m.op == n.op && m.op->effects.repeatable() && equal_arguments(m.args, n.args, left);
}

static thread_local const SymInt* declared_size = nullptr;
DeclaredSize::DeclaredSize(const SymInt* size) : outer_(std::exchange(declared_size, size)) {}
DeclaredSize::~DeclaredSize() { declared_size = outer_; }
const SymInt* DeclaredSize::now() { return declared_size; }

}  // namespace facula::graph
