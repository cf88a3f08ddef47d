#include "facula/run/program_call.h"

#include <memory>
#include <vector>

#include "facula/autograd/calls.h"
#include "facula/graph/trace.h"
#include "facula/op/operator.h"
#include "facula/profile/profile.h"
#include "facula/run/call_cache.h"
#include "facula/run/graph_body.h"
#include "facula/run/pipeline.h"
#include "facula/run/stored_graph.h"
#include "facula/run/trace_call.h"
#include "facula/run/write.h"

namespace facula::run {

using op::Form;
using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

// The graph of a call behind its passes. That of a traced program is looked up on the disk, and left there.
Program::Simplified simplified_graph(const Operator& o, std::span<const Value> args,
                                     std::span<const Tensor> out, std::span<const Value> operands) {
  std::string name = out.empty() ? stored_name_of_call(o, operands) : "";
  if (!name.empty())
    if (auto g = load_graph(name, graph_body(o)->graph())) return {std::move(*g), name};
  Program::Simplified traced{pipeline::simplify(trace_call(o, args, out, Composites::bodies), o.name()),
                             name};
  if (name.empty()) return traced;
  traced.graph.renumber();
  store_graph(name, traced.graph);
  return traced;
}

std::shared_ptr<const Program> program_of(const Operator& o, std::span<const Value> args,
                                          std::span<const Tensor> out, std::span<const Value> operands) {
  return traced_call<Program>(o, trace_key(o, args, out), operands, [&] {
    return std::make_shared<const Program>(simplified_graph(o, args, out, operands), o.name(), keeper_of(o));
  });
}

bool same_geometry(const TensorImpl& a, const TensorImpl& b) {
  return a.offset == b.offset && a.sizes == b.sizes && a.strides == b.strides && a.dtype == b.dtype;
}

// The strides that users see of the results of a functional call.
std::vector<Dims> logical_strides_of(const Operator& o, std::span<const Value> args) {
  if (o.is<op::Composite>()) return logical_strides(trace_call(o, args, {}));
  std::vector<Dims> all;
  for (auto& m : graph::infer(o, args))
    all.push_back(m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes));
  return all;
}

// Fills the cache entry that serves the calls of one layout. False: it serves this call alone.
struct EntryMaker {
  const ProgramCall& call;
  std::span<const Value> operands;
  bool overwrites_self;  // the program may write the result over its first operand while it reads it
  bool resized = false;

  bool operator()(CacheEntry& entry) {
    profile::Scope scope(profile::Category::compile, "plan ", call.op.name());
    try {
      if (fill_flattened(entry)) return true;
      fill(entry);
    } catch (const Error&) {
      // Either the call itself is wrong, which the call over the logical layout will say, or a view needs that layout.
      if (!call.physical) throw;
      entry = {};
      entry.needs_logical = true;
    }
    return !resized;
  }

 private:
  bool fill_flattened(CacheEntry& entry) {
    auto& o = call.op;
    if (!o.is<op::Composite>() || !o.schema.mutates() || call.physical) return false;
    FlattenedOperands flat(call.args, operands);
    if (!flat.possible()) return false;
    entry.program = program_of(o, flat.args(), {}, flat.operands());
    entry.plan = entry.program->plan_of_elements(flat.operands());
    return bool(entry.plan);
  }
  void check(size_t k, const op::Meta& result) {
    resized |= check_destination(call.op, k, result, call.out[k], call.args, call.form);
  }
  void fill(CacheEntry& entry) {
    auto& [o, args, out, form, physical, logical_args, copies_self] = call;
    bool composite = o.is<op::Composite>();
    if (!composite) {
      auto metas = graph::infer(o, args);
      for (size_t k = 0; k < out.size(); ++k) check(k, metas[k]);
    }
    if (composite && form == Form::out && takes_exact_out(o, args)) {
      auto program = program_of(o, args, {}, operands);
      for (size_t k = 0; k < out.size(); ++k)
        check_conversion(o, program->graph().outputs[k]->tensor.dtype(), out[k].dtype(), args, true);
    }
    entry.program = program_of(o, args, out, operands);
    if (overwrites_self && !entry.program->writes_onto(0)) {
      entry = {};
      entry.needs_self_copy = true;
      return;
    }
    for (size_t k = 0; composite && k < out.size(); ++k)
      check(k, {entry.program->output_sizes(k, operands), entry.program->graph().outputs[k]->tensor.dtype()});
    entry.needs_logical = physical && needs_logical_inputs(entry.program->graph());
    if (!entry.needs_logical) entry.plan = entry.program->plan(operands, out);
    if (physical && form == Form::functional) entry.logical_strides = logical_strides_of(o, logical_args);
  }
};

// Replaces the operands that a destination overlaps by copies, so that results are as if computed elsewhere and then copied.
// An elementwise operator may write over an operand of the same geometry. A loop may write over its first operand if its
// program allows that (Program::writes_onto): true.
bool copy_overlapped(const ProgramCall& call, SmallVector<Value, 8>& operands, std::vector<Tensor>& copies) {
  bool elementwise = call.op.is<op::Pointwise>(), overwrites_self = false;
  for (auto& t : call.out)
    for (auto& v : operands) {
      if (v.tag != Tag::tensor || v.tensor->storage != t.impl()->storage) continue;
      bool same = same_geometry(*v.tensor, *t.impl());
      if (elementwise && same) continue;
      if (same && !call.copies_self && call.form == Form::in_place && call.op.is<op::Loop>() &&
          &v == operands.begin()) {
        overwrites_self = true;
        continue;
      }
      Borrowed operand(v.tensor);
      Tensor copy = Tensor::empty(operand->sizes(), operand->dtype(), operand->device());
      autograd::invoke("copy", {copy, *operand}, Form::in_place);
      copies.push_back(copy);
      v = Value(copies.back());
    }
  return overwrites_self;
}

// Runs the call over its operands' memory in physical layouts; none if all are in the logical layout after all.
std::optional<Results> run_over_physical(const ProgramCall& call) {
  if (call.form == Form::out)
    for (auto& t : call.out)
      if (has_physical_layout(t.impl())) t.impl()->storage->restore_logical();  // it may be resized
  bool writes = call.op.is<op::Composite>() && (call.op.schema.mutates() || call.op.effects.writes);
  // Kernels of these handle packed layouts themselves (in_one_order).
  InMemory m(call.args, call.out, writes || call.op.is<op::Pointwise>() ? Packed::kept : Packed::restored);
  if (!m.any()) return {};
  Results results = run_program({call.op, m.args(), m.out(), call.form, &m, call.args});
  for (size_t k = 0; k < call.out.size() && k < results.size(); ++k) results[k] = call.out[k];
  return results;
}

Results run_over_logical(const ProgramCall& call) {
  call.physical->restore();
  std::vector<Tensor> out;
  for (auto& t : call.out) {
    auto* original = call.physical->original(t.impl());
    out.push_back(original ? Tensor(Ref<TensorImpl>::share(original)) : t);
  }
  return run_program({call.op, call.logical_args, out, call.form});
}

// Gives the results of a call over physical layouts the strides that users see.
Results show_logical_strides(Results results, const InMemory& physical, const CacheEntry& entry) {
  for (size_t k = 0; k < results.size(); ++k) {
    auto* input = physical.original(results[k].impl());
    results[k] = input ? Tensor(Ref<TensorImpl>::share(input))
                       : with_logical_strides(std::move(results[k]), entry.logical_strides[k]);
  }
  return results;
}

}  // namespace

Results run_program(const ProgramCall& call) {
  bool logical = !call.physical && !any_physical_layout(call.args) && !any_physical_layout(call.out);
  if (!call.physical && !logical) [[unlikely]]
    if (auto results = run_over_physical(call)) return std::move(*results);
  Key key;
  Operands operands;
  key_of(call.op, call.args, Purpose(call.form), key, operands);
  SmallVector<Value, 8>& values = operands.values;
  std::vector<Tensor> copies;
  bool overwrites_self = !call.out.empty() && copy_overlapped(call, values, copies);
  for (auto& t : call.out) append(key, t, values);
  if (call.physical) call.physical->append(key);
  CachedCall entry(call.op, key, EntryMaker{call, values, overwrites_self});
  if (entry->needs_logical) return run_over_logical(call);
  if (entry->needs_self_copy) {
    ProgramCall again = call;
    again.copies_self = true;
    return run_program(again);
  }
  if (!call.physical || call.form != Form::functional)
    return entry->program->execute(*entry->plan, values, call.out, logical);
  return show_logical_strides(entry->program->execute(*entry->plan, values, call.out), *call.physical,
                              *entry);
}

Results run_program_by_items(const ProgramCall& call) {
  size_t count = call.args[0].list.count;
  bool same = count > 1;
  for (auto& v : call.args) same &= v.tag != Tag::tensors || v.list.count == 0 || v.list.count == count;
  if (!same) return run_program(call);
  SmallVector<Value, 16> item;
  for (size_t k = 0; k < count; ++k) {
    item.assign(call.args.data(), call.args.size());
    for (auto& v : item)
      if (v.tag == Tag::tensors && v.list.count) v = Value(v.tensors().subspan(k, 1));
    run_program({call.op, item, {}, Form::functional});
  }
  return {};
}

}  // namespace facula::run
