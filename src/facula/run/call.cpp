// The walk of every operator call (op::call):
//   interceptors that look at operands -> the thread's mode -> further interceptors (interceptors.h) -> the operator's kind
//   -> a view's geometry, a library, a program, or the calls of a body -> a node of the tape.
#include <optional>

#include "facula/autograd/autograd.h"
#include "facula/base/settings.h"
#include "facula/op/grad_name.h"
#include "facula/op/registry.h"
#include "facula/op/views.h"
#include "facula/run/composite.h"
#include "facula/run/devices.h"
#include "facula/run/interceptors.h"
#include "facula/run/interpose.h"
#include "facula/run/layout.h"
#include "facula/run/library_call.h"
#include "facula/run/program_call.h"
#include "facula/run/write.h"

namespace facula::run {
namespace {

using op::Form;
using op::Operator;
using op::OpKind;
using op::Results;
using op::Tag;
using op::Value;

Results run_view(const Invocation& call) {
  auto& o = call.op;
  Borrowed base(call.args[0].tensor);
  Results results;
  if (call.interposer) [[unlikely]] {
    results = interposed_results(call);
  } else {
    auto views = o.as<op::View>()->rule(call.call(), op::Geometry(o.name(), base, false));
    for (auto& v : views) results.push_back(v.apply(base));
  }
  for (size_t k = 0; o.differentiable && k < results.size(); ++k)
    if (results[k].impl()->storage == base->impl()->storage)
      autograd::track_view(results[k], base, op::shares_node(o), o.name(), int(k));
  if (call.recording && o.differentiable) autograd::record(o, call.args, Form::functional, results);
  return results;
}

// x.t_(): the tensor takes the view's sizes and strides and, on the tape, its history. No element moves.
Results run_view_in_place(Invocation& call) {
  Tensor self = call.self();
  if (!self.has_overlap()) autograd::check_in_place(call.name(), self, call.recording);
  if (has_physical_layout(self.impl())) self.impl()->storage->restore_logical();
  Results views = [&] {
    Invocation functional(call.op, call.args, Form::functional, {});
    functional.interposer = call.interposer;
    functional.recording = call.recording;
    return run_view(functional);
  }();
  TensorImpl &to = *self.impl(), &from = *views[0].impl();
  to.sizes = from.sizes;
  to.strides = from.strides;
  to.offset = from.offset;
  if (auto node = call.recording ? autograd::node_of(views[0]) : Ref<autograd::Node>())
    autograd::set_history(self, node, autograd::meta_of(views[0])->result);
  self.bump_version();
  return self;
}

[[gnu::noinline]] Results perform_view(Invocation& call) {
  return call.form == Form::in_place ? run_view_in_place(call) : run_view(call);
}

// Gives the node of a procedure's first result with a gradient the name that the definition asks for; an empty name keeps that
// of the last call of its body.
void name_last_node(const op::Call& c, const Results& results) {
  auto node_of = [](const Tensor& t) { return t.defined() ? autograd::node_of(t) : Ref<autograd::Node>(); };
  for (auto& result : results.all())
    if (auto node = node_of(result)) {
      bool is_operands =
          op::any_tensor(c.args(), [&](TensorImpl* t) { return t && node_of(Borrowed(t)) == node; });
      if (is_operands) return;
      auto& rule = c.op().grad_name;
      if (auto* fixed = rule.target<op::FixedGradName>()) return node->set_name(fixed->text);
      std::string name = rule(c);
      if (!name.empty()) node->set_name(name);
      return;
    }
}

// Counts the writes of one call to its destinations as one, however many copies it makes on the way.
class WriteCount {
 public:
  explicit WriteCount(std::span<const Tensor> out) : out_(out) {
    for (auto& t : out) before_.push_back(t.version());
  }
  void finish() const {
    for (size_t k = 0; k < out_.size(); ++k)
      out_[k].version_counter()->value.store(before_[k] + 1, std::memory_order_relaxed);
  }

 private:
  std::span<const Tensor> out_;
  SmallVector<uint32_t, 4> before_;
};

// Makes the calls of a composite's or procedure's body. They are recorded one by one, unless a composite has a gradient rule.
Results run_body(const Invocation& call) {
  auto& o = call.op;
  auto& body = *o.calls();
  op::Call c = call.call();
  if (call.form != Form::functional) {
    std::vector<Value> args(call.args.begin(), call.args.end());
    Tensor old;  // the gradients of the calls may need the value that will be overwritten
    if (call.recording && call.form == Form::in_place)
      args[0] = Value(old = autograd::copy_with_history(call.self()));
    WriteCount writes(call.out);
    Results results = deliver(call, body(op::Call(o, args)));
    writes.finish();
    return results;
  }
  if (!o.is<op::Composite>() || !call.recording || !o.vjp) {
    Results results = body(c);
    if (call.recording && o.grad_name && !o.is<op::Composite>()) name_last_node(c, results);
    return results;
  }
  Results results;
  {
    autograd::GradMode off(false);
    results = body(c);
  }
  if (o.differentiable) autograd::record(o, call.args, call.form, results);
  return results;
}

inline Results run_kernels(const Operator& o, std::span<const Value> args, Form form,
                           std::span<const Tensor> out) {
  if (o.backed()) {
    Results results = run_library(o, args, {});
    if (form == Form::functional) return results;
    autograd::GradMode off(false);  // the write is part of this call
    return deliver({o, args, form, out}, std::move(results));
  }
  bool by_items =
      o.is<op::Composite>() && args.size() && args[0].tag == Tag::tensors && o.schema.parameters[0].written;
  ProgramCall call{o, args, out, form};
  return by_items ? run_program_by_items(call) : run_program(call);
}

// Computes the results of the call as a whole and records it as one node.
inline Results compute(const Invocation& call) {
  auto& o = call.op;
  WriteCount writes(call.out);
  Results results = call.interposer ? interposed_results(call)
                    : call.device.type == DeviceType::cpu
                        ? run_kernels(o, call.args, call.form, call.out)
                        : run_elsewhere(call.device, o, call.args, call.form, call.out, run_kernels);
  if (!call.interposer) {  // an interposer's writes have been counted by the calls that it makes
    writes.finish();
    if (o.effects.writes) bump_written(call);
  }
  if (call.recording && (o.differentiable || call.form == Form::in_place)) {
    if (o.calls() && !o.vjp) record_recomputed(o, call.args, results);
    else autograd::record(o, call.args, call.form, results, call.original);
  }
  if (call.form == Form::functional && autograd::inference_enabled()) [[unlikely]]
    for (size_t k = 0; k < results.size(); ++k)
      if (results[k].defined()) results[k].impl()->inference = true;
  return results;
}

[[gnu::noinline]] Results perform_primitive(Invocation& call) {
  if (call.form != Form::functional)
    if (auto results = prepare_write(call)) return std::move(*results);
  return compute(call);
}

// A composite or a procedure.
[[gnu::noinline]] Results perform_body(Invocation& call) {
  auto& o = call.op;
  if (call.form != Form::functional)
    if (auto results = prepare_write(call)) return std::move(*results);
  if (call.as_one_call) return compute(call);
  bool call_by_call = (call.recording && call.form != Form::functional && !o.vjp) ||
                      call.device.type != DeviceType::cpu || !settings().fuse || call.interposer;
  if (o.is<op::Procedure>() || call_by_call) return run_body(call);
  if (call.recording && !o.vjp) return run_composite(o, call.args);
  return compute(call);
}

// The functions of the kinds are not inlined: their frames would become one, which every call would pay for.
inline Results by_kind(Invocation& call) {
  switch (call.op.kind()) {
    case OpKind::pointwise:
    case OpKind::loop:
    case OpKind::library:
    case OpKind::data_dependent: return perform_primitive(call);
    case OpKind::view: return perform_view(call);
    case OpKind::composite:
    case OpKind::procedure: return perform_body(call);
    case OpKind::foreign: return run_foreign(call);
  }
  __builtin_unreachable();
}

// An interposer judges operands itself: a tensor-like object may have a dtype that kernels do not compute in. So it is asked
// as well about what the operator's check or body refuses before it has made a call.
[[gnu::cold, gnu::noinline]] Results perform_interposed(Invocation& call) {
  const Parts* parts = nullptr;
  call.as_one_call = is_seen_as_one_call(call, parts);
  if (parts) return (*parts)(call.call());
  if (call.as_one_call) return by_kind(call);
  uint64_t before = interposed_calls();
  try {
    if (call.op.check) call.op.check(call.call());
    return by_kind(call);
  } catch (const Error& e) {
    bool may_be_of_dtype = e.kind() != ErrorKind::internal && e.type() != ErrorType::KeyboardInterrupt;
    if (!may_be_of_dtype || call.form != Form::functional || interposed_calls() != before) throw;
  }
  call.as_one_call = true;
  return compute(call);
}

// Notes the writes of a call to its operands when it ends, even by an exception.
class NotesWrites {
 public:
  explicit NotesWrites(const Invocation& call) : call_(call) {}
  NotesWrites(const NotesWrites&) = delete;
  ~NotesWrites() {
    for (auto& t : call_.out) note(t.impl());
    if (call_.form == Form::in_place) note(call_.args[0].tensor);
    for (size_t k = 0; k < call_.args.size(); ++k) {
      auto& v = call_.args[k];
      if (!call_.op.schema.parameters[k].written) [[likely]]
        continue;
      if (v.tag == Tag::tensor) note(v.tensor);
      if (v.tag == Tag::tensors)
        for (auto* t : v.tensors()) note(t);
    }
  }

 private:
  static void note(TensorImpl* t) {
    if (t && t->storage) t->storage->note_written();
  }
  const Invocation& call_;
};

inline Results perform_by_kind(Invocation& call) {
  NotesWrites notes(call);
  call.recording = autograd::needs_record(call.args);
  if (call.interposer) [[unlikely]]
    return perform_interposed(call);
  if (call.op.check) call.op.check(call.call());
  return by_kind(call);
}

inline Results perform(Invocation& call) {
  internal_check(call.args.size() == call.op.schema.parameters.size())
      << call.op.schema.full_name() << ": " << call.args.size() << " arguments";
  return any_interceptor() ? pass_behind_mode(call, perform_by_kind) : perform_by_kind(call);
}

inline Results take_by_mode(Invocation& call) {
  if (auto* mode = op::Mode::current()) return mode->take(call.op, call.args, call.form, call.out);
  return perform(call);
}

}  // namespace
}  // namespace facula::run

namespace facula::op {

Results call(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  run::Invocation invocation(o, args, form, out);
  return run::any_interceptor() ? run::pass_before_mode(invocation, run::take_by_mode)
                                : run::take_by_mode(invocation);
}

Results perform(const Operator& o, std::span<const Value> args, Form form, std::span<const Tensor> out) {
  run::Invocation invocation(o, args, form, out);
  return run::perform(invocation);
}

}  // namespace facula::op
