#include "facula/run/write.h"

#include <algorithm>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/base/warning.h"
#include "facula/op/memory_overlap.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/run/invocation.h"

namespace facula::run {

using autograd::invoke;
using op::Form;
using op::Operator;
using op::Overlap;
using op::Results;
using op::Tag;
using op::Value;

namespace {

// Gives an out= tensor the sizes of the result, with more memory if need be.
void resize_destination(const Operator& o, size_t k, const op::Meta& m, const Tensor& out,
                        std::span<const Value> args) {
  auto* t = out.impl();
  if (product(out.sizes()) != SymInt(int64_t(0)))
    warn(
        "An output with one or more elements was resized since it had shape " + to_string(out.sizes()) +
        ", which does not match the required output shape " + to_string(SymSpan(m.sizes)) +
        ". This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they have zero "
        "elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).");
  // Operators of other kinds compute their results elsewhere before they write.
  bool direct = o.is<op::Pointwise>() || o.is<op::Loop>();
  runtime_check(!direct || !op::any_tensor(args, [&](const TensorImpl* x) { return x == t; }), o.name())
      << "output with shape " << to_string(out.sizes()) << " doesn't match the broadcast shape "
      << to_string(SymSpan(m.sizes)) << hint("out= is an operand too, which cannot grow while it is read");
  Dims strides;
  if (o.forms.resized) strides = o.forms.resized(op::Call(o, args), k, out, m.sizes);
  if (strides.empty()) strides = contiguous_strides(m.sizes);
  SymInt extent(int64_t(1));  // elements from the first to the last, gaps included
  for (size_t d = 0; d < strides.size(); ++d) extent += (m.sizes[d] - SymInt(int64_t(1))) * strides[d];
  int64_t count = product(m.sizes).concrete();
  int64_t bytes = (count ? extent.concrete() : 0) * itemsize(t->dtype);
  runtime_check(t->offset == 0, o.name())
      << "out= has shape " << to_string(out.sizes()) << " but the result has " << to_string(SymSpan(m.sizes));
  bool fits = int64_t(t->storage->bytes()) >= bytes;
  runtime_check(fits || !t->storage->is_foreign(), o.name())
      << "trying to resize storage that is not resizable: out= has shape " << to_string(out.sizes())
      << " over memory that is not the library's own, and the result has " << to_string(SymSpan(m.sizes))
      << hint("give out= a tensor of the result's shape");
  if (!fits) t->storage = make_ref<StorageImpl>(size_t(bytes), t->device);
  t->sizes = m.sizes;
  t->strides = std::move(strides);
}

}  // namespace

bool check_destination(const Operator& o, size_t k, const op::Meta& m, const Tensor& out,
                       std::span<const Value> args, Form form) {
  bool same_size =
      m.sizes.size() == out.sizes().size() && std::equal(m.sizes.begin(), m.sizes.end(), out.sizes().begin());
  if (form == Form::in_place) {
    runtime_check(same_size, o.name()) << "output with shape " << to_string(out.sizes())
                                       << " doesn't match the broadcast shape " << to_string(SymSpan(m.sizes))
                                       << hint("an in-place operator cannot grow its first argument; use ",
                                               o.name(), " without the underscore");
  } else if (!same_size) {
    resize_destination(o, k, m, out, args);
  }
  check_conversion(o, m.dtype, out.dtype(), args, form == Form::out);
  return !same_size;
}

Results deliver(const Invocation& call, Results results) {
  if (call.form == Form::functional) return results;
  auto& out = call.out;
  runtime_check(out.size() == results.size(), call.name())
      << "expected an out= argument of " << results.size() << " tensors, but got " << out.size();
  Results delivered;
  for (size_t k = 0; k < out.size(); ++k) {
    if (call.op.forms.keeps_out_shape && out[k].numel() == results[k].numel())
      results[k] = invoke("view", {results[k], out[k].sizes()});
    check_destination(call.op, k, {Dims(results[k].sizes()), results[k].dtype()}, out[k], call.args,
                      call.form);
    invoke("copy", {out[k], results[k]}, Form::in_place);
    delivered.push_back(out[k]);
  }
  return delivered;
}

void bump_written(const Invocation& call) {
  for (size_t k = 0; k < call.args.size(); ++k) {
    if (!call.op.schema.parameters[k].written) continue;
    auto& v = call.args[k];
    if (v.tag == Tag::tensor) Borrowed(v.tensor)->bump_version();
    if (v.tag == Tag::tensors)
      for (auto* t : v.tensors())
        if (t) Borrowed(t)->bump_version();
  }
}

namespace {

// Whether elements of `t` share memory although no stride is 0. PyTorch refuses writes along strides of 0 alone.
bool overlaps_itself(const Tensor& t) {
  for (int d = 0; d < t.dim(); ++d)
    if (t.stride(d) == SymInt(int64_t(0)) && t.size(d) > SymInt(int64_t(1))) return false;
  return !t.is_contiguous() && t.has_overlap();
}

void check_partial_overlap(const Operator& o, const TensorImpl& written, std::span<const Value> args) {
  Tensor a(Ref<TensorImpl>::share(const_cast<TensorImpl*>(&written)));
  auto begin = [](const Tensor& t) { return t.offset() * SymInt(int64_t(itemsize(t.dtype()))); };
  for (auto& v : args) {
    if (v.tag != Tag::tensor || !v.tensor || v.tensor == &written || v.tensor->storage != written.storage ||
        !written.storage)
      continue;
    Tensor b(Ref<TensorImpl>::share(v.tensor));
    op::check_partial_overlap(o.name(), a, begin(a), b, begin(b));
  }
}

// The view of `self` that has each element of its expanded dimensions (stride 0) once; undefined if there are none.
Tensor without_expansion(const Tensor& self) {
  Tensor t;
  for (int d = 0; d < self.dim(); ++d)
    if (self.stride(d) == SymInt(int64_t(0)) && self.size(d) > SymInt(int64_t(1)))
      t = invoke("narrow", {t.defined() ? t : self, int64_t(d), int64_t(0), int64_t(1)});
  return t;
}

// Runs an operator that overwrites some elements in place on an expanded tensor: each element in memory gets the value of the
// last of its places that changed. `once` is `self` without its expansion.
Results overwrite_expanded(const Invocation& call, const Tensor& self, const Tensor& once) {
  Tensor result = op::call(call.op, call.args)[0], changed = invoke("ne", {result, self});
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

// Runs an operator in place on a tensor that overlaps itself. A pointwise one goes through it in order, slice by slice from the
// largest stride on, so that an element takes part once for each of its places; the result of another is copied so.
Results write_slice_by_slice(const Invocation& call, const Tensor& self) {
  if (!call.op.is<op::Pointwise>()) {
    invoke("copy", {self, op::call(call.op, call.args)[0]}, Form::in_place);
    return self;
  }
  int outermost = 0;
  for (int d = 1; d < self.dim(); ++d)
    if (self.stride(d) > self.stride(outermost)) outermost = d;
  std::vector<Tensor> expanded;  // by argument; undefined: a number
  for (auto& v : call.args) {
    bool is_tensor = v.tag == Tag::tensor && v.tensor && !v.tensor->sizes.empty();
    Tensor t = is_tensor ? Tensor(Ref<TensorImpl>::share(v.tensor)) : Tensor();
    if (is_tensor && v.tensor != self.impl()) t = invoke("expand", {t, self.sizes(), false});
    expanded.push_back(t);
  }
  for (int64_t i = 0; i < self.size(outermost).concrete(); ++i) {
    std::vector<Value> args(call.args.begin(), call.args.end());
    std::vector<Tensor> slices;
    for (size_t k = 0; k < args.size(); ++k) {
      if (!expanded[k].defined()) continue;
      slices.push_back(invoke("select", {expanded[k], int64_t(outermost), i}));
      args[k] = Value(slices.back());
    }
    op::call(call.op, args, Form::in_place);
  }
  return self;
}

// Runs an in-place call on a tensor whose elements may share memory; nothing if they do not, or if it makes no difference.
std::optional<Results> write_shared_elements(const Invocation& call, const Tensor& self) {
  auto overlap = call.op.forms.overlap;
  bool uniform = overlap == Overlap::uniform && (call.args.size() < 2 || call.args[1].tag != Tag::tensor);
  if (uniform || overlap == Overlap::overwrites)
    if (Tensor once = without_expansion(self); once.defined()) {
      if (overlap == Overlap::overwrites) return overwrite_expanded(call, self, once);
      std::vector<Value> args(call.args.begin(), call.args.end());
      args[0] = Value(once);
      op::call(call.op, args, Form::in_place);
      return Results(self);
    }
  if (overlaps_itself(self)) return write_slice_by_slice(call, self);
  return {};
}

std::optional<Results> prepare_in_place(Invocation& call) {
  Tensor self = call.self();
  if (!self.is_contiguous())
    if (auto results = write_shared_elements(call, self)) return results;
  autograd::check_in_place(call.name(), self, call.recording);
  if (auto* procedure = call.op.as<op::Procedure>(); procedure && procedure->in_place) {
    procedure->in_place(call.call());
    return Results(self);
  }
  if (call.recording) call.original = autograd::original_of(call.op, call.args);
  call.write_to_self();
  return {};
}

std::optional<Results> prepare_out(Invocation& call) {
  if (autograd::grad_enabled()) op::check_out_without_gradients(call.name(), call.out, call.recording);
  if (call.op.forms.for_out) {
    DType computed = call.op.forms.for_out(call.call(), call.out);
    if (call.args[0].tensor->dtype != computed)
      call.replace_first(invoke("to_dtype", {call.self(), computed}));
  }
  if (std::any_of(call.out.begin(), call.out.end(), overlaps_itself)) {
    Results results = op::call(call.op, call.args);
    for (size_t k = 0; k < call.out.size(); ++k) {
      invoke("copy", {call.out[k], results[k]}, Form::in_place);
      results[k] = call.out[k];
    }
    return results;
  }
  for (auto& t : call.out)
    runtime_check(t.is_contiguous() || !t.has_overlap(), call.name())
        << "unsupported operation: more than one element of the written-to tensor refers to a single memory location"
        << hint("clone() it first");
  if (call.op.forms.keeps_out_shape) return deliver(call, op::call(call.op, call.args));
  return {};
}

}  // namespace

std::optional<Results> prepare_write(Invocation& call) {
  auto results = call.form == Form::in_place ? prepare_in_place(call) : prepare_out(call);
  if (!results && call.op.is<op::Pointwise>())
    for (auto& t : call.out) check_partial_overlap(call.op, *t.impl(), call.args);
  return results;
}

}  // namespace facula::run
