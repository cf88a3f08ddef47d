// How a call travels: mode, then by kind. Kernels, composites and their programs are cached on the operator
// by the layout of the call (entry), and below that by what was traced (program), so new sizes plan but do
// not re-trace.
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/base/fork.h"
#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/grad_name.h"
#include "facula/op/registry.h"
#include "facula/profile/profile.h"
#include "facula/run/below.h"
#include "facula/run/composite.h"
#include "facula/run/destination.h"
#include "facula/run/devices.h"
#include "facula/run/entry.h"
#include "facula/run/layout.h"
#include "facula/run/lazy.h"
#include "facula/run/profiled.h"
#include "facula/run/sparse.h"
#include "facula/sym/substitute.h"
#include "facula/tensor/promotion.h"

namespace facula::run {

using op::Form;
using op::Operator;
using op::Results;
using op::Tag;
using op::Type;
using op::Value;

Key trace_key(const Operator& o, std::span<const Value> args, std::span<const Tensor> out) {
  Key key{uint64_t(default_dtype())};
  for (size_t k = 0; k < args.size(); ++k) {
    auto& v = args[k];
    auto of_tensor = [&](const TensorImpl* t) {
      key.push_back(t ? uint64_t(t->dtype) << 1 | 1 | uint64_t(t->wrapped_number) << 8 |
                            uint64_t(t->sizes.size()) << 16
                      : 0);
    };
    key.push_back(uint64_t(v.tag));
    if (v.tag == Tag::tensor) of_tensor(v.tensor);
    else if (v.tag == Tag::tensors) {
      key.push_back(v.list.count);
      for (auto* t : v.tensors()) of_tensor(t);
    } else if (is_run_time_number(o, k, v)) key.push_back(uint64_t(op::operand_dtype(v)));
    else { op::append_attributes(key, args.subspan(k, 1)); }
  }
  for (auto& t : out) key.push_back(t.defined() ? uint64_t(t.dtype()) + 1 : 0);
  return key;
}

std::vector<graph::InputSpec> GraphBody::specs(std::span<const Value> operands, sym::Shapes& shapes) const {
  internal_check(operands.size() == graph_->inputs.size()) << "other operands than the graph has";
  std::vector<SymInt> symbols;                                      // of the graph, as the trace knows them
  std::vector<bool> shown(size_t(graph_->shapes->symbol_count()));  // by operands
  for (int k = 0; k < graph_->shapes->symbol_count(); ++k) symbols.push_back(graph_->shapes->symbol(k));
  std::unordered_map<uint64_t, SymInt> known;
  auto symbol = [&](SymInt e, int64_t n) {
    auto it = known.find(e.identity());
    if (it != known.end() && it->second.hint() == n) return it->second;
    SymInt s = n < 2 ? SymInt(n) : shapes.fresh("s" + std::to_string(shapes.symbol_count()), n);
    return known[e.identity()] = s;
  };
  auto each_size = [&](auto&& f) {
    for (size_t i = 0; i < operands.size(); ++i) {
      auto sizes = graph_->inputs[i]->tensor.sizes();
      for (size_t d = 0; d < sizes.size(); ++d) f(sizes[d], operands[i].tensor->sizes[d].hint());
    }
  };
  each_size([&](SymInt e, int64_t n) {
    if (!e.is_symbol()) return;
    symbols[size_t(e.node()->value)] = symbol(e, n);
    shown[size_t(e.node()->value)] = true;
  });
  auto of_trace = [&](SymInt e, int64_t n) {
    if (!e.is_symbolic()) return SymInt(n);
    if (e.is_symbol()) return symbols[size_t(e.node()->value)];
    bool known = true;
    sym::each_symbol(e, [&](size_t k) { known &= shown[k]; });
    return known ? sym::substitute(e, symbols) : symbol(e, n);
  };
  std::vector<graph::InputSpec> all;
  for (size_t i = 0; i < operands.size(); ++i) {
    Tensor t(Ref<TensorImpl>::share(operands[i].tensor));
    auto expected = graph_->inputs[i]->tensor.sizes();
    Dims sizes;
    for (size_t d = 0; d < expected.size(); ++d) sizes.push_back(of_trace(expected[d], t.sizes()[d].hint()));
    all.push_back(graph::spec_with(t, std::move(sizes)));
  }
  return all;
}

graph::Graph trace_call(const Operator& o, std::span<const Value> args, std::span<const Tensor> out) {
  Key key;
  Operands operands;
  key_of(o, args, Purpose::functional, key, operands);
  auto shapes = std::make_shared<sym::Shapes>();
  std::vector<graph::InputSpec> specs;
  auto* composite = o.as<op::Composite>();
  bool exact = composite && composite->exact_sizes;
  auto* of_graph = graph_body(o);
  bool is_piece = of_graph && of_graph->is_piece();
  if (is_piece) specs = of_graph->specs(operands.values, *shapes);
  else
    for (auto& v : operands.values) {
      Tensor t(v.tag == Tag::tensor ? Ref<TensorImpl>::share(v.tensor) : Ref<TensorImpl>());
      if (t.defined()) specs.push_back(exact ? graph::spec_of(t) : graph::symbolic_spec(t, *shapes));
      else specs.push_back({op::operand_dtype(v), {}, {}, true});
    }
  try {
    return graph::trace(
        shapes, specs,
        [&](std::span<const Tensor> inputs) {
          std::vector<Value> given(args.begin(), args.end());
          std::vector<std::vector<TensorImpl*>> lists(args.size());
          for (size_t i = 0; i < inputs.size(); ++i) {
            size_t k = operands.position[i] >> 16, item = operands.position[i] & 0xffff;
            if (args[k].tag == Tag::tensors) {
              auto& l = lists[k];
              if (l.empty()) {
                auto items = args[k].tensors();
                l.assign(items.begin(), items.end());
                given[k] = Value(std::span<TensorImpl* const>(l));
              }
              l[item] = inputs[i].impl();
            } else {
              given[k] = Value(inputs[i]);
            }
          }
          auto results = op::call(o, given).to_vector();
          for (size_t k = 0; k < results.size() && k < out.size(); ++k) {
            if (!out[k].defined() || out[k].dtype() == results[k].dtype()) continue;
            if (o.calls())  // others have been checked, by the form of the call
              check_conversion(o, results[k].dtype(), out[k].dtype(), args, results.size() > 1);
            Value cast[] = {results[k], out[k].dtype()};
            results[k] = op::call(op::get("to_dtype"), cast)[0];
          }
          return results;
        },
        o.name());
  } catch (const Error& e) {
    // A trace knows sizes by name; the call itself, operator by operator, says which they are.
    bool writes = is_piece ? of_graph->writes() : o.effects.writes;
    if (o.calls() && e.kind() != ErrorKind::internal && !writes) {
      autograd::GradMode off(false);
      (*o.calls())(op::Call(o, args));
    }
    throw;
  }
}

namespace {

std::shared_ptr<const Program> program_of(const Operator& o, std::span<const Value> args,
                                          std::span<const Tensor> out, std::span<const Value> operands) {
  auto& cache = cache_of(o);
  Key key = trace_key(o, args, out);
  {
    std::lock_guard lock(cache.mutex);
    if (auto* known = cache.traced.find(key))
      for (auto& p : *known)
        if (p->accepts(operands)) return p;
  }
  auto program = std::make_shared<const Program>(trace_call(o, args, out), o.name(), keeper_of(o));
  std::lock_guard lock(cache.mutex);
  auto* known = cache.traced.find(key);
  if (!known) known = &cache.traced.put(std::move(key), {});
  if (known->size() >= kMaxPrograms) known->erase(known->begin());
  known->push_back(program);
  return program;
}

// Inputs that overlap a destination at other elements are copied first, so that results are as if computed
// apart.
Tensor shadow(const Tensor& t) {
  Tensor copy = Tensor::empty(t.sizes(), t.dtype(), t.device());
  Value args[] = {copy, t};
  op::call(op::get("copy"), args, Form::in_place);
  return copy;
}

std::vector<Tensor> originals_of(std::span<const Tensor> out, const InMemory& physical) {
  std::vector<Tensor> all;
  for (auto& t : out) {
    auto* original = physical.original(t.impl());
    all.push_back(original ? Tensor(Ref<TensorImpl>::share(original)) : t);
  }
  return all;
}

bool same_geometry(const TensorImpl& a, const TensorImpl& b) {
  return a.offset == b.offset && a.sizes == b.sizes && a.strides == b.strides && a.dtype == b.dtype;
}

// What users see of the strides of a functional call.
std::vector<Dims> logical_strides_of(const Operator& o, std::span<const Value> args) {
  if (o.is<op::Composite>()) return logical_strides(trace_call(o, args, {}));
  std::vector<Dims> all;
  for (auto& m : graph::infer(o, args))
    all.push_back(m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes));
  return all;
}

// The call of a composite that writes, over tensors of one dimension: where all its tensors lie alike and
// densely, and all it does is done element by element, the program and the plan of their memory in a row
// serve, and tensors of every rank share them.
class InARow {
 public:
  InARow(std::span<const Value> args, std::span<const Value> operands) {
    const TensorImpl* first = nullptr;
    for (auto& v : operands) {
      if (v.tag != Tag::tensor || v.tensor->wrapped_number) continue;
      auto& t = *v.tensor;
      if (!first) first = &t;
      if (t.sizes.size() == 1 || t.sizes != first->sizes || t.strides != first->strides ||
          t.device.type != DeviceType::cpu)
        return;
    }
    if (!first ||
        !Tensor(Ref<TensorImpl>::share(const_cast<TensorImpl*>(first))).is_non_overlapping_and_dense())
      return;
    for (auto& v : args) {
      args_.push_back(v);
      if (v.tag == Tag::tensor) args_.back() = Value(in_a_row(v.tensor));
      if (v.tag != Tag::tensors) continue;
      auto& list = lists_.emplace_back();
      for (auto* t : v.tensors()) list.push_back(t ? in_a_row(t) : nullptr);
      args_.back() = Value(std::span<TensorImpl* const>(list));
    }
    for (auto& v : operands) operands_.push_back(v.tag == Tag::tensor ? Value(in_a_row(v.tensor)) : v);
  }
  bool possible() const { return !args_.empty(); }
  std::span<const Value> args() const { return args_; }
  std::span<const Value> operands() const { return operands_; }

 private:
  TensorImpl* in_a_row(TensorImpl* t) {
    if (t->wrapped_number) return t;
    for (auto& [original, flat] : made_)
      if (original == t) return flat.impl();
    Tensor whole(Ref<TensorImpl>::share(t));
    Dims sizes{whole.numel()}, strides{SymInt(int64_t(1))};
    made_.push_back({t, whole.alias(sizes, strides, whole.offset())});
    return made_.back().second.impl();
  }
  std::vector<Value> args_, operands_;
  std::deque<std::vector<TensorImpl*>> lists_;
  std::vector<std::pair<TensorImpl*, Tensor>> made_;
};

// Makes the entry that serves the calls of one layout, for run_compiled.
struct Compilation {
  const Operator& o;
  std::span<const Value> args, values;  // values: the program's operands
  std::span<const Tensor> out;
  Form form;
  const InMemory* physical;
  std::span<const Value> given;
  bool onto;  // the result lies where the first operand does
  bool resized = false;

  bool operator()(Entry& entry) {  // false: it serves this call only
    profile::Scope scope(profile::Category::compile, "plan ", o.name());
    try {
      if (fill_in_a_row(entry)) return true;
      fill(entry);
    } catch (const Error&) {
      // Of a view that only the logical layout has, or of the call itself, which then says so.
      if (!physical) throw;
      entry = {};
      entry.needs_logical = true;
    }
    return !resized;
  }

 private:
  // Elements that are written in place, whatever the shape.
  bool fill_in_a_row(Entry& entry) {
    if (!o.is<op::Composite>() || !o.schema.mutates() || physical) return false;
    InARow row(args, values);
    if (!row.possible()) return false;
    entry.program = program_of(o, row.args(), {}, row.operands());
    entry.plan = entry.program->plan_of_elements(row.operands());
    return bool(entry.plan);
  }
  void fill(Entry& entry) {
    bool composite = o.is<op::Composite>();
    if (!composite) {
      auto metas = graph::infer(o, args);
      for (size_t k = 0; k < out.size(); ++k)
        resized |= check_destination(o, k, metas[k], out[k], args, form);
    }
    if (composite && form == Form::out && takes_exact_out(o, args)) {
      auto program = program_of(o, args, {}, values);
      for (size_t k = 0; k < out.size(); ++k)
        check_conversion(o, program->graph().outputs[k]->tensor.dtype(), out[k].dtype(), args, true);
    }
    entry.program = program_of(o, args, out, values);
    if (onto && !entry.program->writes_onto(0)) {
      entry = {};
      entry.needs_copy = true;
      return;
    }
    for (size_t k = 0; composite && k < out.size(); ++k) {
      DType dtype = entry.program->graph().outputs[k]->tensor.dtype();
      resized |= check_destination(o, k, {entry.program->output_sizes(k, values), dtype}, out[k], args, form);
    }
    entry.needs_logical = physical && needs_logical_inputs(entry.program->graph());
    if (!entry.needs_logical) entry.plan = entry.program->plan(values, out);
    if (physical && form == Form::functional) entry.logical_strides = logical_strides_of(o, given);
  }
};

// The operands that a result may not be written over while they are read, replaced by copies (`shadows`). True if a loop
// may be written over its first operand, which the program decides (Program::writes_onto); not if it is `apart`.
bool separate(const Operator& o, SmallVector<Value, 8>& values, std::span<const Tensor> out, Form form,
              bool apart, std::vector<Tensor>& shadows) {
  bool elementwise = o.is<op::Pointwise>(), onto = false;
  for (auto& t : out)
    for (auto& v : values) {
      if (v.tag != Tag::tensor || v.tensor->storage != t.impl()->storage) continue;
      bool same = same_geometry(*v.tensor, *t.impl());
      if (elementwise && same) continue;
      if (same && !apart && form == Form::in_place && o.is<op::Loop>() && &v == values.begin()) {
        onto = true;
        continue;
      }
      shadows.push_back(shadow(Tensor(Ref<TensorImpl>::share(v.tensor))));
      v = Value(shadows.back());
    }
  return onto;
}

// A pointwise or loop operator, or a composite as a fused program, without recording. `physical`: what `args`
// and `out` replace, where they lie otherwise than `given` says. `apart`: a loop reads a copy of what it
// writes in place.
Results run_compiled(const Operator& o, std::span<const Value> args, std::span<const Tensor> out, Form form,
                     const InMemory* physical = nullptr, std::span<const Value> given = {},
                     bool apart = false) {
  bool logical = !physical && !any_physical_layout(args) && !any_physical_layout(out);
  if (!physical && !logical) [[unlikely]] {
    if (form == Form::out)
      for (auto& t : out)
        if (has_physical_layout(t.impl())) t.impl()->storage->restore_logical();  // may be resized
    bool writes = o.is<op::Composite>() && (o.schema.mutates() || o.effects.writes);
    // What is packed: kernels see to it (in_one_order).
    InMemory m(args, out, writes || o.is<op::Pointwise>() ? Packed::kept : Packed::restored);
    if (m.any()) {
      Results results = run_compiled(o, m.args(), m.out(), form, &m, args);
      for (size_t k = 0; k < out.size() && k < results.size(); ++k) results[k] = out[k];
      return results;
    }
  }
  Key key;
  Operands operands;
  key_of(o, args, Purpose(form), key, operands);
  SmallVector<Value, 8>& values = operands.values;
  std::vector<Tensor> shadows;
  bool onto = !out.empty() && separate(o, values, out, form, apart, shadows);
  for (auto& t : out) append(key, t, values);
  if (physical) physical->append(key);
  EntryHandle found(o, key, Compilation{o, args, values, out, form, physical, given, onto});
  if (found->needs_logical) {
    physical->restore();
    return run_compiled(o, given, originals_of(out, *physical), form);
  }
  if (found->needs_copy) return run_compiled(o, args, out, form, physical, given, true);
  if (!physical || form != Form::functional)
    return found->program->execute(*found->plan, values, out, logical);
  Results results = found->program->execute(*found->plan, values, out);
  for (size_t k = 0; k < results.size(); ++k) {
    auto* input = physical->original(results[k].impl());
    results[k] = input ? Tensor(Ref<TensorImpl>::share(input))
                       : with_logical_strides(std::move(results[k]), found->logical_strides[k]);
  }
  return results;
}

// A composite that writes lists of tensors, as an optimizer's step does, treats item k of each list by itself
// (docs/adding_an_operator.md). So each item is a call of its own: equal ones share a program and a plan,
// which would else have to be made for all the items of a model at once.
Results run_items(const Operator& o, std::span<const Value> args) {
  size_t count = args[0].list.count;
  bool same = count > 1;
  for (auto& v : args) same &= v.tag != Tag::tensors || v.list.count == 0 || v.list.count == count;
  if (!same) return run_compiled(o, args, {}, Form::functional);
  SmallVector<Value, 16> item;
  for (size_t k = 0; k < count; ++k) {
    item.assign(args.data(), args.size());
    for (auto& v : item)
      if (v.tag == Tag::tensors && v.list.count) v = Value(v.tensors().subspan(k, 1));
    run_compiled(o, item, {}, Form::functional);
  }
  return {};
}

// Several views of one call refuse writes because they share a node, except parts that PyTorch makes slice by slice.
bool gives_slices(const Operator& o) {
  auto* named = o.grad_name.target<op::FixedGradName>();
  return named && named->text == op::grad_name("Slice");
}

Results run_view(const Operator& o, std::span<const Value> args, bool recording, Below* below) {
  Borrowed base(args[0].tensor);
  Results results;
  if (below) [[unlikely]] {
    results = taken(*below, o, args, Form::functional, {});
  } else {
    auto views = o.as<op::View>()->rule(op::Call(o, args), op::Geometry(o.name(), base, false));
    for (auto& v : views) results.push_back(v.apply(base));
  }
  bool shares_node = o.schema.returns[0].list && !gives_slices(o);
  for (size_t k = 0; o.differentiable && k < results.size(); ++k)
    if (results[k].impl()->storage == base->impl()->storage)
      autograd::track_view(results[k], base, shares_node, o.name(), int(k));
  if (recording && o.differentiable) autograd::record(o, args, Form::functional, results);
  return results;
}

// x.t_(): the tensor takes the view's place, with its sizes, strides and, on the tape, its history. No
// element moves.
Results run_view_in_place(const Operator& o, std::span<const Value> args, bool recording, Below* below) {
  Tensor self(Ref<TensorImpl>::share(args[0].tensor));
  if (!self.has_overlap()) autograd::check_in_place(o.name(), self, recording);
  if (has_physical_layout(self.impl())) self.impl()->storage->restore_logical();
  Results views = run_view(o, args, recording, below);
  TensorImpl &to = *self.impl(), &from = *views[0].impl();
  to.sizes = from.sizes;
  to.strides = from.strides;
  to.offset = from.offset;
  if (auto node = recording ? autograd::node_of(views[0]) : Ref<autograd::Node>())
    autograd::set_history(self, node, autograd::meta_of(views[0])->result);
  self.bump_version();
  return self;
}

// Counts the write for every argument that the schema says is written.
void bump_written(const Operator& o, std::span<const Value> args) {
  for (size_t k = 0; k < args.size(); ++k) {
    if (!o.schema.parameters[k].written) continue;
    if (args[k].tag == Tag::tensor) Tensor(Ref<TensorImpl>::share(args[k].tensor)).bump_version();
    if (args[k].tag == Tag::tensors)
      for (auto* t : args[k].tensors())
        if (t) Tensor(Ref<TensorImpl>::share(t)).bump_version();
  }
}

// The functional result copied to where it was wanted.
Results deliver(const Operator& o, std::span<const Value> args, Results results, std::span<const Tensor> out,
                Form form) {
  if (form == Form::functional) return results;
  Results delivered;
  runtime_check(out.size() == results.size(), o.name())
      << "expected an out= argument of " << results.size() << " tensors, but got " << out.size();
  for (size_t k = 0; k < out.size(); ++k) {
    if (o.forms.keeps_out_shape && out[k].numel() == results[k].numel())
      results[k] = autograd::invoke("view", {results[k], out[k].sizes()});
    check_destination(o, k, {Dims(results[k].sizes()), results[k].dtype()}, out[k], args, form);
    Value copied[] = {out[k], results[k]};
    op::call(op::get("copy"), copied, Form::in_place);
    delivered.push_back(out[k]);
  }
  return delivered;
}

// The composed reference of a library operator: its gradient is the operator's, not that of these calls.
Results by_operators(const Operator& o, const op::Call& c, Device device) {
  auto& reference = o.backed()->composed_reference;
  supported_check(reference, o.name()) << "is not implemented on device " << device;
  autograd::GradMode off(false);
  return reference(c);
}

// An error that a library raised itself, whose text says nothing to users.
[[gnu::cold]] [[noreturn]] void refused_by_library(const op::Call& c, const char* why) {
  std::string operands;
  for (auto& v : c.args()) {
    if (v.tag != Tag::tensor || !v.tensor) continue;
    operands += std::string(operands.empty() ? "" : ", ") + name(v.tensor->dtype) +
                to_string(SymSpan(v.tensor->sizes)) + " with strides " +
                to_string(SymSpan(v.tensor->strides));
  }
  runtime_check(false, c.op().name())
      << "the library that computes it refuses these operands: " << operands << " (" << why << ")"
      << hint("contiguous() makes plain copies of them");
  __builtin_unreachable();
}

inline Results run_function(backend::LibraryFn fn, const op::Call& c, std::span<const Tensor> out) {
  try {
    if (profile::on()) [[unlikely]]
      return run_function_profiled(fn, c, out);
    return fn(c, out);
  } catch (const Error&) { throw; } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) { refused_by_library(c, e.what()); }
}

Results run_foreign(const Operator& o, std::span<const Value> args, bool recording, Below* below = nullptr) {
  auto& f = *o.as<op::Foreign>()->functions;
  op::Call c(o, args);
  profile::Scope scope(profile::Category::user, o.name());
  if (f.is_composite()) return f.run(c);
  if (recording && !o.effects.writes) return f.record(c);
  autograd::GradMode off(false);
  Results results = below ? taken(*below, o, args, Form::functional, {}) : f.run(c);
  if (o.effects.writes) bump_written(o, args);
  return results;
}

// The slow definition of a library operator, as a loop.
const Operator& reference_loop(const Operator& o, const op::Library& library) {
  static TableMutex mutex;
  static std::unordered_map<const Operator*, std::unique_ptr<Operator>> derived;
  std::lock_guard lock(mutex);
  auto& d = derived[&o];
  if (!d) {
    d = std::make_unique<Operator>();
    d->schema = op::parse_schema(o.schema.text);
    d->definition = op::Loop{library, library.reference};
    d->dtypes = o.dtypes;
    d->promote = o.promote;
    d->result_type = o.result_type;
    d->dtype_rule = o.dtype_rule;
    d->parent = &o;
  }
  return *d;
}

// How the results of a library call lie in memory, where users see entry.metas; `read`: what follows from operands as
// they lie, if they lie otherwise than they show.
void place_results(const Operator& o, Entry& entry, const std::vector<op::Meta>& read) {
  bool chooses = o.as<op::Library>()->channels_last == op::ChannelsLast::chooses;
  for (size_t k = 0; k < entry.metas.size(); ++k) {
    auto& m = entry.metas[k];
    if (m.strides.size() != m.sizes.size()) m.strides = contiguous_strides(m.sizes);
    Dims lying = m.strides;
    if (chooses && m.sizes.size() == 4 && is_floating(m.dtype) && itemsize(m.dtype) <= 4)
      lying = channels_last_strides(m.sizes);
    else if (!read.empty())  // what reads operands as they lie makes results that lie alike
      lying = read[k].strides.size() == m.sizes.size() ? read[k].strides : contiguous_strides(m.sizes);
    entry.logical_strides.push_back(m.strides);
    entry.in_memory.push_back(lying);
    entry.bytes.push_back(storage_bytes(o.name(), m.sizes, m.strides, m.dtype));
  }
}

}  // namespace

Results run_library(const Operator& o, std::span<const Value> args, std::span<const Tensor> out) {
  Device device{};
  for (auto& v : args)
    if (v.tag == Tag::tensor) {
      device = v.tensor->device;
      break;
    }
  if (o.is<op::Foreign>()) return run_foreign(o, args, false);
  op::Call c(o, args);
  if (auto* dependent = o.as<op::DataDependent>()) {
    auto fn = backend::backend_of(device.type).find(dependent->name);
    if (fn && settings().libraries) return run_function(fn, c, {});
    return by_operators(o, c, device);
  }
  // Operands in a physical layout as they lie in memory, for a library that reads them so; others restore the logical one
  // on access.
  auto& library = *o.as<op::Library>();
  std::optional<InMemory> physical;
  if (library.channels_last != op::ChannelsLast::no && settings().libraries && any_physical_layout(args)) {
    physical.emplace(args, std::span<const Tensor>(), Packed::kept);
    args = physical->args();
  }
  Key key;
  Operands operands;
  key_of(o, args, Purpose::functional, key, operands);
  if (physical) physical->append(key);
  EntryHandle found(o, key, [&](Entry& entry) {
    profile::Scope scope(profile::Category::compile, "plan ", o.name());
    entry.library = backend::backend_of(device.type).find(library.name);
    entry.metas = graph::infer(o, c.args());
    place_results(o, entry, physical ? graph::infer(o, args) : std::vector<op::Meta>());
    return true;
  });
  bool by_library = found->library && settings().libraries;
  Results results;
  if (!out.empty())
    for (auto& t : out) results.push_back(t);
  else
    for (size_t k = 0; k < found->metas.size(); ++k) {
      auto& m = found->metas[k];
      const Dims& strides = by_library ? found->in_memory[k] : m.strides;
      results.push_back(Tensor(make_ref<TensorImpl>(make_ref<StorageImpl>(found->bytes[k], m.device), m.sizes,
                                                    strides, SymInt(), m.dtype, m.device)));
    }
  if (by_library) {
    run_function(found->library, op::Call(o, args), results.all());
    if (out.empty() && library.channels_last != op::ChannelsLast::no)
      for (size_t k = 0; k < results.size(); ++k)
        results[k] = with_logical_strides(std::move(results[k]), found->logical_strides[k]);
    return results;
  }
  if (!library.reference) return deliver(o, args, by_operators(o, c, device), results.all(), Form::out);
  return run_compiled(reference_loop(o, library), args, results.all(), Form::out);
}

Results run_library(backend::LibraryFn fn, const Operator& o, std::span<const Value> args, Results out) {
  if (!fn || !settings().libraries) return run_library(o, args, out.all());
  std::optional<InMemory> physical;
  if (o.as<op::Library>()->channels_last != op::ChannelsLast::no && any_physical_layout(args)) {
    physical.emplace(args, std::span<const Tensor>(), Packed::kept);
    args = physical->args();
  }
  run_function(fn, op::Call(o, args), out.all());
  return out;
}

// An operand is the written tensor, element for element, or lies elsewhere. As PyTorch, tensors with gaps are
// not looked at.
static void check_partial_overlap(const Operator& o, const TensorImpl& written, std::span<const Value> args) {
  for (auto& v : args) {
    if (v.tag != op::Tag::tensor || !v.tensor || v.tensor == &written ||
        v.tensor->storage != written.storage || !written.storage)
      continue;
    Tensor a(Ref<TensorImpl>::share(const_cast<TensorImpl*>(&written))), b(Ref<TensorImpl>::share(v.tensor));
    if (a.numel() == 0 || b.numel() == 0 || !a.is_non_overlapping_and_dense() ||
        !b.is_non_overlapping_and_dense())
      continue;
    auto first = [](const Tensor& t) { return t.offset() * SymInt(int64_t(itemsize(t.dtype()))); };
    auto last = [&](const Tensor& t) { return first(t) + t.numel() * SymInt(int64_t(itemsize(t.dtype()))); };
    if (!(first(a) < last(b)) || !(first(b) < last(a))) continue;
    bool same = first(a) == first(b) && last(a) == last(b) && Dims(a.strides()) == Dims(b.strides());
    runtime_check(same, o.name())
        << "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please "
           "clone() the tensor before performing the operation."
        << hint("it writes ", to_string(a.sizes()), " and reads ", to_string(b.sizes()),
                " of the same memory");
  }
}

// A view of self in which no element is there twice by a stride of 0; undefined if self is that already.
static Tensor without_repeats(const Tensor& self) {
  Tensor t;
  for (int d = 0; d < self.dim(); ++d)
    if (self.stride(d) == SymInt(int64_t(0)) && self.size(d) > SymInt(int64_t(1))) {
      Value args[] = {t.defined() ? t : self, int64_t(d), int64_t(0), int64_t(1)};
      t = op::call(op::get("narrow"), args)[0];
    }
  return t;
}

// What is left when an operator that overwrites elements runs over an expanded tensor in order: of what is
// there several times, the last that was changed.
static Results overwrite_expanded(const Operator& o, const Tensor& self, const Tensor& once,
                                  std::span<const Value> args) {
  using autograd::invoke;
  Tensor result = op::call(o, args)[0], changed = invoke("ne", {result, self});
  for (int d = 0; d < self.dim(); ++d) {
    if (self.stride(d) != SymInt(int64_t(0)) || !(self.size(d) > SymInt(int64_t(1)))) continue;
    Tensor at = invoke("cumsum", {invoke("ones_like", {changed, DType::Int64}), int64_t(d)});  // 1, 2, ...
    Tensor last = invoke("amax", {invoke("mul", {changed, at}), SymSpan(Dims{SymInt(int64_t(d))}), true});
    result =
        invoke("gather", {result, int64_t(d),
                          invoke("clamp_min", {invoke("sub", {last, Scalar(int64_t(1)), Scalar(int64_t(1))}),
                                               Scalar(int64_t(0))})});
    changed = invoke("ne", {last, Scalar(int64_t(0))});
  }
  invoke("copy", {once, result}, Form::in_place);
  return self;
}

// Do elements of t share memory, though each dimension moves on? PyTorch refuses writes along strides of 0
// only.
static bool overlaps_itself(const Tensor& t) {
  for (int d = 0; d < t.dim(); ++d)
    if (t.stride(d) == SymInt(int64_t(0)) && t.size(d) > SymInt(int64_t(1))) return false;
  return !t.is_contiguous() && t.has_overlap();
}

// An operator in place on a tensor that overlaps itself: pointwise ones go through it in order, slice by slice
// from the largest stride on, so that an element that is there several times takes part as often; what others
// give is copied so.
static Results in_order(const Operator& o, const Tensor& self, std::span<const Value> args) {
  using autograd::invoke;
  if (!o.is<op::Pointwise>()) {
    invoke("copy", {self, op::call(o, args)[0]}, Form::in_place);
    return self;
  }
  int outermost = 0;
  for (int d = 1; d < self.dim(); ++d)
    if (self.stride(d) > self.stride(outermost)) outermost = d;
  std::vector<Tensor> spread;
  for (auto& v : args) {
    bool is_tensor = v.tag == Tag::tensor && v.tensor && !v.tensor->sizes.empty();
    Tensor t = is_tensor ? Tensor(Ref<TensorImpl>::share(v.tensor)) : Tensor();
    if (is_tensor && v.tensor != self.impl()) t = invoke("expand", {t, self.sizes(), false});
    spread.push_back(t);
  }
  for (int64_t i = 0; i < self.size(outermost).concrete(); ++i) {
    std::vector<Value> part(args.begin(), args.end());
    std::vector<Tensor> slices;
    for (size_t k = 0; k < args.size(); ++k) {
      if (!spread[k].defined()) continue;
      slices.push_back(invoke("select", {spread[k], int64_t(outermost), i}));
      part[k] = Value(slices.back());
    }
    op::call(o, part, Form::in_place);
  }
  return self;
}

}  // namespace facula::run

namespace facula::op {

// add(float32[8, 8], float32[8, 8], 1)
[[gnu::cold, gnu::noinline]] static void log_call(const Operator& o, std::span<const Value> args, Form form) {
  auto tensor = [](const TensorImpl* t) {
    return t ? std::string(name(t->dtype)) + to_string(SymSpan(t->sizes)) : "None";
  };
  std::string text = o.schema.full_name() +
                     (form == Form::in_place ? " in place"
                      : form == Form::out    ? " into out"
                                             : "") +
                     "(";
  for (size_t k = 0; k < args.size(); ++k) {
    auto& v = args[k];
    if (k) text += ", ";
    if (v.tag == Tag::tensor) {
      text += tensor(v.tensor);
    } else if (v.tag == Tag::tensors) {
      text += "[";
      for (auto* t : v.tensors()) text += (text.back() == '[' ? "" : ", ") + tensor(t);
      text += "]";
    } else {
      text += o.schema.parameters[k].name;
    }
  }
  log_line(Log::ops, text + ")");
}

Results call(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  if (TensorImpl::lazy_exist.load(std::memory_order_relaxed)) [[unlikely]] {
    if (run::any_sparse(args, out)) return run::call_sparse(o, args, form, out);
    if (!run::takes_lazy(o, form) && run::any_lazy(args, out)) return run::call_resolved(o, args, form, out);
  }
  if (auto* mode = Mode::current()) return mode->take(o, args, form, out);
  return perform(o, args, form, out);
}

namespace {

using namespace facula::run;

// In place, where elements of self may share memory; empty: they do not, or no matter.
std::optional<Results> write_repeated(const Operator& o, const Tensor& self, std::span<const Value> args) {
  if (o.forms.overlap == Overlap::uniform && (args.size() < 2 || args[1].tag != Tag::tensor))
    if (Tensor once = without_repeats(self); once.defined()) {
      std::vector<Value> all(args.begin(), args.end());
      all[0] = Value(once);
      op::call(o, all, Form::in_place);
      return Results(self);
    }
  if (o.forms.overlap == Overlap::overwrites)
    if (Tensor once = without_repeats(self); once.defined()) return overwrite_expanded(o, self, once, args);
  if (overlaps_itself(self)) return in_order(o, self, args);
  return {};
}

// Into destinations of which elements share memory: from copies, in the order of the elements.
Results write_in_order(const Operator& o, std::span<const Value> args, std::span<const Tensor> out) {
  Results results = op::call(o, args);
  for (size_t k = 0; k < out.size(); ++k) {
    autograd::invoke("copy", {out[k], results[k]}, Form::in_place);
    results[k] = out[k];
  }
  return results;
}

void check_destinations(const Operator& o, std::span<const Tensor> out, bool recording) {
  if (!autograd::grad_enabled()) return;
  for (auto& t : out)
    runtime_check(!recording && !t.requires_grad(), o.name())
        << "functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad";
}
void check_single_locations(const Operator& o, std::span<const Tensor> out) {
  for (auto& t : out)
    runtime_check(t.is_contiguous() || !t.has_overlap(), o.name())
        << "unsupported operation: more than one element of the written-to tensor refers to a single memory location"
        << hint("clone() it first");
}

// The node of a procedure's first result with a gradient is called as the definition says; an empty text leaves the name of
// the last step.
void name_last_step(const Call& c, const Results& results) {
  auto node_of = [](const Tensor& t) { return t.defined() ? autograd::node_of(t) : Ref<autograd::Node>(); };
  for (auto& result : results.all())
    if (auto node = node_of(result)) {
      // A result that is an operand keeps its history.
      if (op::any_tensor(c.args(), [&](TensorImpl* t) { return t && node_of(Borrowed(t)) == node; })) return;
      auto& rule = c.op().grad_name;
      if (auto* fixed = rule.target<op::FixedGradName>()) return node->set_name(fixed->text);
      std::string name = rule(c);
      if (!name.empty()) node->set_name(name);
      return;
    }
}

// A composite or procedure as the calls of its body, which are recorded one by one unless it has a rule.
Results run_calls(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out,
                  bool recording) {
  auto& calls = *o.calls();
  Call c(o, args);
  if (form != Form::functional) {
    std::vector<Value> read(args.begin(), args.end());
    Tensor old;  // the gradients of the calls may need the value that will be overwritten
    if (recording && form == Form::in_place)
      read[0] = Value(old = autograd::copy_with_history(Tensor(Ref<TensorImpl>::share(args[0].tensor))));
    Results results = deliver(o, args, calls(Call(o, read)), out, form);
    for (auto& t : out) t.bump_version();
    return results;
  }
  if (!o.is<Composite>() || !recording || !o.vjp) {
    Results results = calls(c);
    if (recording && o.grad_name && !o.is<Composite>()) name_last_step(c, results);
    return results;
  }
  Results results;
  {
    autograd::GradMode off(false);
    results = calls(c);
  }
  if (o.differentiable) autograd::record(o, args, form, results);
  return results;
}

Results run_kernels(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  if (o.backed()) {
    if (form == Form::functional) return run_library(o, args, {});
    Results results = run_library(o, args, {});
    autograd::GradMode off(false);  // the write is part of this call
    return deliver(o, args, std::move(results), out, form);
  }
  bool items =
      o.is<Composite>() && args.size() && args[0].tag == Tag::tensors && o.schema.parameters[0].written;
  return items ? run_items(o, args) : run_compiled(o, args, out, form);
}

// `original`: what a gradient needs of the value that is written over.
Results compute(Device device, const Operator& o, std::span<const Value> args, Form form,
                std::span<const Tensor> out, bool recording, const Tensor& original, Below* below) {
  Results results = below                            ? taken(*below, o, args, form, out)
                    : device.type == DeviceType::cpu ? run_kernels(o, args, form, out)
                                                     : run_elsewhere(device, o, args, form, out, run_kernels);
  if (!below) {  // what writes in its place has counted
    if (form != Form::functional)
      for (auto& t : out) t.bump_version();
    if (o.effects.writes) bump_written(o, args);
  }
  if (recording && (o.differentiable || form == Form::in_place)) {
    if (o.calls() && !o.vjp) record_composite(o, args, results);
    else autograd::record(o, args, form, results, original);
  }
  if (form == Form::functional && autograd::inference_enabled()) [[unlikely]]
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k].defined()) results[k].impl()->inference = true;
  return results;
}

// The first operand in the dtype that the call computes in for `out`; undefined if it has it.
Tensor converted_for_out(const Operator& o, std::span<const Value> args, std::span<const Tensor> out) {
  DType computed = o.forms.for_out(Call(o, args), out);
  if (args[0].tensor->dtype == computed) return {};
  Value given[] = {args[0], computed};
  return op::call(op::get("to_dtype"), given)[0];
}

Results perform_on(Device device, const Operator& o, std::span<const Value> args, Form form,
                   std::span<const Tensor> out, Below* below) {
  if (o.check) o.check(Call(o, args));
  bool recording = autograd::needs_record(args);
  if (o.is<View>())
    return form == Form::in_place ? run_view_in_place(o, args, recording, below)
                                  : run_view(o, args, recording, below);
  if (o.is<Foreign>()) return run_foreign(o, args, recording, below);
  bool whole = true;
  if (below) [[unlikely]] {
    const Parts* parts = nullptr;
    whole = seen_whole(o, form, recording, parts);
    if (parts) return (*parts)(Call(o, args));
  }

  Tensor self, original;  // original: the old value, if the gradient needs it
  if (form == Form::in_place) {
    self = Tensor(Ref<TensorImpl>::share(args[0].tensor));
    if (!self.is_contiguous())
      if (auto done = write_repeated(o, self, args)) return std::move(*done);
    autograd::check_in_place(o.name(), self, recording);
    if (auto* procedure = o.as<Procedure>(); procedure && procedure->in_place) {
      procedure->in_place(Call(o, args));
      return self;
    }
    if (recording) original = autograd::original_of(o, args);
    out = std::span<const Tensor>(&self, 1);
  } else if (form == Form::out) {
    check_destinations(o, out, recording);
    if (o.forms.for_out) {
      if (Tensor first = converted_for_out(o, args, out); first.defined()) {
        std::vector<Value> given(args.begin(), args.end());
        given[0] = Value(first);
        return perform_on(device, o, given, form, out, below);
      }
    }
    if (std::any_of(out.begin(), out.end(), overlaps_itself)) return write_in_order(o, args, out);
    check_single_locations(o, out);
    if (o.forms.keeps_out_shape) return deliver(o, args, op::call(o, args), out, form);
  }
  if (form != Form::functional && o.is<Pointwise>())
    for (auto& t : out) check_partial_overlap(o, *t.impl(), args);

  if (o.calls() && !(below && whole)) {
    bool by_calls = (recording && form != Form::functional && !o.vjp) || device.type != DeviceType::cpu ||
                    !settings().fuse || !whole;
    if (!o.is<Composite>() || by_calls) return run_calls(o, args, form, out, recording);
    if (recording && !o.vjp) return run_composite(o, args);
  }
  return compute(device, o, args, form, out, recording, original, below);
}

// Where tensors may be on other devices.
[[gnu::noinline]] Results perform_there(const Operator& o, std::span<const Value> args, Form form,
                                        std::span<const Tensor> out, Below* below) {
  Device device = device_of(o, args, form, out);
  Gathered there(device, o, args, out);
  DefaultDevice inside(device);
  return perform_on(device, o, there.args(), form, out, below);
}

}  // namespace

Results perform(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  if (profile::on() && !is_inside_profiled()) [[unlikely]]
    return perform_profiled(o, args, form, out);
  if (log_on(Log::ops)) [[unlikely]]
    log_call(o, args, form);
  internal_check(args.size() == o.schema.parameters.size())
      << o.schema.full_name() << ": " << args.size() << " arguments";
  Below* below = nullptr;
  if (below_in_use.load(std::memory_order_relaxed)) [[unlikely]]
    below = find_below(args, out);
  if (devices_in_use.load(std::memory_order_relaxed)) [[unlikely]]
    return perform_there(o, args, form, out, below);
  return perform_on(Device{}, o, args, form, out, below);
}

}  // namespace facula::op
