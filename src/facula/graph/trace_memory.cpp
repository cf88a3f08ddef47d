// Tracks memory while a function is traced: its current value, views of it, and writes, which become new values.
#include <algorithm>
#include <functional>

#include "facula/autograd/calls.h"
#include "facula/autograd/formula.h"
#include "facula/graph/passes.h"
#include "facula/graph/tracer.h"
#include "facula/op/memory_overlap.h"
#include "facula/op/views.h"
#include "facula/sym/run_time.h"

namespace facula::graph {

namespace {

using Kind = op::ViewStep::Kind;

// Provides the gradient of one result of a view, for undoing the view's steps.
class OfOneResult final : public op::Vjp {
 public:
  OfOneResult(const op::Call& c, int result, Tensor grad)
      : call_(c), result_(result), grad_(std::move(grad)) {}
  Tensor grad(int r) const override { return r == result_ ? grad_ : Tensor(); }
  Tensor operator[](op::ParameterName arg) const override { return call_.tensor(arg); }
  Tensor item(op::ParameterName arg, int k) const override { return call_.tensors(arg)[size_t(k)]; }
  Tensor result(int) const override { return {}; }
  bool needs(op::ParameterName, int) const override { return true; }
  const op::Call& call() const override { return call_; }

 private:
  const op::Call& call_;
  int result_;
  Tensor grad_;
};

bool same_sizes(const Tensor& a, const Tensor& b) { return std::ranges::equal(a.sizes(), b.sizes()); }

bool is_contiguous_for_all_sizes(const Tensor& t) {
  return std::ranges::equal(t.strides(), contiguous_strides(Dims(t.sizes())), SymInt::surely_equal);
}

// Checks whether two indices may share an element. For symbolic sizes the answer becomes a guard.
bool overlaps(const Tensor& t) {
  if (t.has_overlap()) return true;
  auto sizes = t.sizes();
  bool decided =
      !any_symbolic(sizes) || std::ranges::any_of(sizes, sym::is_run_time) || is_contiguous_for_all_sizes(t);
  if (!decided &&
      op::may_overlap(sizes, t.strides()))  // they do not nest, and only these sizes are known to be apart
    for (SymInt s : sizes) (void)s.guard_int();
  return false;
}

// The geometry of a view in memory where its operand begins at `offset`.
op::Geometry geometry_of(const Value* v, SymInt offset) {
  auto& n = *v->producer;
  auto& of = operands(n)[0]->tensor;
  op::Args args = n.args.clone();
  return n.op->as<op::View>()->rule(op::Call(*n.op, args.values()),
                                    op::Geometry(n.op->name(), of.sizes(), of.strides(),
                                                 offset))[size_t(v->result)];
}

const op::ViewStep* strided_step(const op::Geometry& g) {
  auto& steps = g.steps();
  return steps.size() == 1 && steps[0].kind == Kind::strided ? &steps[0] : nullptr;
}

bool keeps_elements(const op::Geometry& g) {
  return std::ranges::none_of(g.steps(), [](auto& s) {
    return s.kind == Kind::as_real || s.kind == Kind::as_complex || s.kind == Kind::as_dtype ||
           s.kind == Kind::conj || s.kind == Kind::neg;
  });
}

// A view with explicit strides (as_strided) may show elements outside of its operand. Its origin is the tensor in
// whose memory both are, with the offset where the view begins in it.
struct Origin {
  Value* in;
  SymInt start;
  bool detached;  // a view on the way was detach()
};
Origin origin_of(Value* v, const Value* base) {
  std::vector<const Value*> way{v};
  Origin p{operands(*v->producer)[0], int64_t(0), false};
  for (; p.in != base && keeps_elements(geometry_of(p.in, int64_t(0))); p.in = operands(*p.in->producer)[0]) {
    way.push_back(p.in);
    p.detached |= !p.in->producer->op->differentiable;
  }
  for (; !way.empty(); way.pop_back()) p.start = geometry_of(way.back(), p.start).offset();
  return p;
}

// Calls f with the place in memory of each element, by the sizes during the trace.
template <class F>
void each_place(SymSpan sizes, SymSpan strides, int64_t start, F f) {
  Ints at(sizes.size(), 0);
  for (int64_t place = start;;) {
    f(place);
    size_t d = 0;
    for (; d < at.size() && at[d] == sizes[d].hint() - 1; at[d++] = 0) place -= at[d] * strides[d].hint();
    if (d == at.size()) return;
    ++at[d];
    place += strides[d].hint();
  }
}

bool is_inside(const op::ViewStep& s, const Origin& p) {
  auto& tensor = p.in->tensor;
  int64_t first = p.start.hint(), end = first + op::reach(s.sizes, s.strides).hint();
  int64_t all = op::reach(tensor.sizes(), tensor.strides()).hint();
  if (std::ranges::any_of(s.sizes, [](SymInt n) { return n.hint() == 0; })) return true;
  if (first < 0 || end > all || tensor.is_non_overlapping_and_dense()) return first >= 0 && end <= all;
  std::vector<bool> own(size_t(all), false);
  each_place(tensor.sizes(), tensor.strides(), 0, [&](int64_t k) { own[size_t(k)] = true; });
  bool inside = true;
  each_place(s.sizes, s.strides, first, [&](int64_t k) { inside &= own[size_t(k)]; });
  return inside;
}

// Refuses views of written memory that show elements outside of the tensor to which it belongs, since the trace does
// not know them. Sizes that are only known later come from views that stay inside.
void check_inside(const Operator& o, const op::ViewStep& s, const Origin& p) {
  auto& tensor = p.in->tensor;
  for (SymSpan all : {tensor.sizes(), tensor.strides(), SymSpan(s.sizes), SymSpan(s.strides)})
    if (std::ranges::any_of(all, sym::is_run_time)) return;
  trace_check(is_inside(s, p), memory, o.name())
      << "sees memory beside a tensor of shape " << to_string(tensor.sizes()) << " with strides "
      << to_string(tensor.strides()) << " that is written, which a trace cannot record"
      << hint("begin with the tensor that has all of it");
}

}  // namespace

// t_() in place: makes the target another view of the same memory.
void Tracer::show_as(const Operator& o, const Tensor& target, const Tensor& view, const op::Value& argument) {
  bool from_outside = captures_ && argument.tag == op::Tag::tensor &&
                      (!argument.tensor->traced || outside_handles_.count(argument.tensor));
  trace_check(!from_outside || has_layout_of(target, view), layout, o.name())
      << "in place changes the sizes or strides of a tensor from outside of the function"
      << hint("take a view of it inside, as by ", o.name(), "() without the underscore");
  exchanged_.push_back(value_of(target)->id);
  target.impl()->sizes = view.impl()->sizes;
  target.impl()->strides = view.impl()->strides;
  target.impl()->traced = view.impl()->traced;
}

Value* Tracer::current(Value* v) {
  trace_check(!captures_ || knows(v), dead_handle, "trace")
      << "a tensor of shape " << to_string(v->tensor.defined() ? v->tensor.sizes() : SymSpan())
      << " from a trace that has ended is read" << hint("make it a result of the function that computes it");
  trace_check(size_t(v->id) >= ended_backward_.size() || !ended_backward_[size_t(v->id)], custom_function,
              "trace")
      << "a tensor of shape " << to_string(v->tensor.sizes())
      << " from the backward of a custom function is read outside of it";
  if (v->id < frozen_before_) return v;
  if (cells_.any_stale()) check_written(v);
  Value* base = cells_.version_of(v);
  Value* now = now_of(base);
  if (now == base) return v;
  Value* seen = seen_through(v, base, now);
  Value* to = seen;
  for (Value* from = v; !apart_.empty() && from != base && to != now;
       from = operands(*from->producer)[0], to = operands(*to->producer)[0])
    if (apart_.count(from->producer)) apart_.insert(to->producer);
  return seen;
}

Value* Tracer::now_of(Value* base) {
  auto* cell = cells_.find(base);
  if (!cell || cell->version || !cell->alias_of) return cell ? cell->now : base;
  Value* now = current(cell->alias_of);
  if (now == cell->alias_of) return base;
  op::Value args[] = {base->tensor, now->tensor};
  Value* seen = value_of(record(op::get("_with_history"), args)[0]);
  cells_.of(seen).alias_of = now;  // it shares the memory too
  return seen;
}

void Tracer::check_separate(const Location& at) const {
  trace_check(!at.cell || (!at.cell->copies && !at.cell->alias_of), alias, "trace")
      << "a result of shape " << to_string(at.version->tensor.sizes())
      << " shares its memory with another tensor in eager calls, and is a copy in a trace"
      << hint("clone() it");
}

void Tracer::check_seen(Value* v, Value* base) const {
  auto geometry = geometry_of(v, int64_t(0));
  if (auto* s = strided_step(geometry)) check_inside(*v->producer->op, *s, origin_of(v, base));
}

void Tracer::check_views(const Results& results) const {
  for (auto& t : results.all()) {
    Value* v = t.defined() ? value_of(t) : nullptr;
    if (!v) continue;
    if (Value* base = cells_.version_of(v); is_written_version(base)) check_seen(v, base);
  }
}

Value* Tracer::seen_through(Value* v, Value* base, Value* now) {
  if (v == base) return now;
  auto& n = *v->producer;
  check_seen(v, base);
  op::Args args = n.args.clone();
  Tensor of = handle(seen_through(operands(n)[0], base, now));
  args.each_tensor([&](size_t slot, Tensor& t) {
    if (slot == 0) t = of;
  });
  return value_of(record(*n.op, args.values())[size_t(v->result)]);
}

// Handles out= with a tensor without elements that the function created: it takes the size of the result.
bool Tracer::resized(const Operator& o, const Tensor& target, const Tensor& value) {
  if (same_sizes(value, target)) return false;
  Value* first = cells_.first_of(value_of(target));
  bool own = first->producer && !target.requires_grad() && SymInt::surely_equal(target.numel(), int64_t(0));
  trace_check(own, layout, o.name()) << "with out= changes the size of a tensor from "
                                     << to_string(target.sizes()) << " to " << to_string(value.sizes())
                                     << ", which a trace cannot record"
                                     << hint("give out= a tensor of the result's shape");
  trace_check(!captures_ || !o.forms.resized, layout, o.name())
      << "with out= decides in which order the elements of a tensor that takes its size lie"
      << hint("give out= a tensor of the result's shape");
  Tensor memory = invoke("clone", {value});
  if (memory.dtype() != target.dtype()) memory = invoke("to_dtype", {memory, target.dtype()});
  auto* t = target.impl();
  exchanged_.push_back(value_of(target)->id);
  t->sizes = Dims(memory.sizes());
  t->strides = Dims(memory.strides());
  t->traced = value_of(memory);
  return true;
}

// Refuses to write a tensor from outside whose memory is read as another tensor too.
void Tracer::check_names(const Operator& o, const Tensor& written) const {
  if (!captures_) return;
  auto* other = cells_.other_name(written, false);
  trace_runtime_check(!other, alias, o.name())
      << "writes to a captured tensor of shape " << to_string(written.sizes())
      << " whose memory it also reads as another tensor, of shape " << to_string(other->sizes())
      << hint("make the view inside of the function");
}

void Tracer::check_target(const Operator& o, Value* written, std::span<const op::Value> args,
                          bool recording) const {
  Value* base = cells_.version_of(written);
  for (Value* v = written; recording && v != base && !apart_.count(v->producer);
       v = operands(*v->producer)[0])
    trace_runtime_check(!op::shares_node(*v->producer->op), gradients, o.name())
        << "writes result " << v->result << " of " << v->producer->op->name()
        << ", a function that returns multiple views, whose results may not be written with gradients"
        << hint("write out of place, or take a slice");
  if (!o.is<op::Pointwise>()) return;
  auto begin = [base](Value* v) {
    SymInt offset(int64_t(0));
    std::vector<Value*> way;
    for (Value* at = v; at != base; at = operands(*at->producer)[0]) way.push_back(at);
    for (; !way.empty(); way.pop_back()) offset = geometry_of(way.back(), offset).offset();
    return offset * SymInt(int64_t(itemsize(v->tensor.dtype())));
  };
  for (auto& a : args) {
    Value* v = a.tag == op::Tag::tensor && a.tensor ? a.tensor->traced : nullptr;
    if (v && v != written && cells_.version_of(v) == base)
      op::check_partial_overlap(o.name(), written->tensor, begin(written), v->tensor, begin(v));
  }
}

void Tracer::write(const Operator& o, const Tensor& target, Tensor value, size_t before, Written history) {
  runtime_check(same_sizes(value, target), o.name())
      << "the result of shape " << to_string(value.sizes()) << " does not fit in place into "
      << to_string(target.sizes());
  Value* v = value_of(target);
  if (SymInt::surely_equal(target.numel(), int64_t(0)) && cells_.version_of(v) != v) return;
  Value* base = cells_.version_of(v);
  auto* cell = cells_.find(base);
  trace_check(!cell || !cell->alias_of, alias, o.name())
      << "writes to a result of a custom function that shares its memory with another tensor"
      << hint("clone() it");
  auto* first = cell ? cell->first : base;
  if (first->constant.defined()) check_names(o, first->constant);
  bool of_leaf = v != base && first->constant.defined() && first->constant.requires_grad() &&
                 !first->constant.impl()->has_node;
  if (captures_ && !inner_depth_ && of_leaf && target.requires_grad() && autograd::grad_enabled()) {
    bool apart = false;
    for (Value* at = v; at != base; at = operands(*at->producer)[0]) apart |= apart_.count(at->producer) > 0;
    trace_check(!apart, memory, o.name())
        << "writes to a piece of a leaf that requires grad, which a traced function has not yet"
        << hint("clone() it");
    runtime_check(false, o.name())
        << "a view of a leaf Variable that requires grad is being used in an in-place operation.";
  }
  trace_check(backward_begin_ < 0 || (first->id >= backward_begin_ && !first->constant.defined()),
              custom_function, o.name())
      << "writes, in the backward of a custom function, to a tensor from outside of it" << hint("clone() it");
  for (auto* seen = v;; seen = operands(*seen->producer)[0]) {
    auto& t = seen->tensor;
    trace_runtime_check(!overlaps(t), memory, o.name())
        << "writes into " << to_string(target.sizes())
        << (seen == v ? "" : ", a view of " + to_string(t.sizes())) << " with strides "
        << to_string(t.strides()) << ", where elements share memory, which a trace cannot record"
        << hint("clone() it first");
    if (seen == base) break;
  }
  if (value.dtype() != target.dtype()) value = invoke("to_dtype", {value, target.dtype()});
  auto* w = value_of(value);
  if (!w->producer || w->producer->op->is<op::View>() || w->producer->id < int(before))
    value = invoke("clone", {value});  // separate memory
  if (history == Written::unrecorded) value = with_history(handle(v), value);
  if (history == Written::ended) value = invoke("copy", {handle(v), without_history(value)});
  while (v != base) value = put_back(o, v, base, value);
  value = laid_as(base, value);
  auto& written = cells_.of(base);
  cells_.write(written, value_of(value));
  if (!inner_depth_) written.users_version = value_of(value)->id, has_written_ = true;
  target.impl()->traced = current(value_of(target));
}

// Gives `value` the layout of the memory to which it is written.
Tensor Tracer::laid_as(Value* base, const Tensor& value) {
  bool alike = true;
  for (int d = 0; d < value.dim(); ++d)
    alike &= SymInt::surely_equal(value.stride(d), base->tensor.stride(d)) ||
             SymInt::surely_equal(value.size(d), int64_t(1));
  if (alike) return value;
  auto& t = base->tensor;
  if (t.is_non_overlapping_and_dense()) return invoke("copy", {handle(base), value});
  Tensor memory =
      invoke("_strided_memory", {value, t.strides(), int64_t(0), op::reach(t.sizes(), t.strides())});
  return invoke("as_strided", {memory, t.sizes(), t.strides(), op::Value()});
}

// The memory of `into` with `value` at the elements of a view with explicit strides, and zeros elsewhere.
Tensor Tracer::strided_into(const Tensor& into, const op::ViewStep& s, SymInt start, const Tensor& value) {
  SymInt numel = max(op::reach(into.sizes(), into.strides()), start + op::reach(s.sizes, s.strides));
  Tensor memory = invoke("_strided_memory", {value, SymSpan(s.strides), start, numel});
  return invoke("_row_major", {invoke("as_strided", {memory, into.sizes(), into.strides(), op::Value()})});
}

Tensor Tracer::put_back(const Operator& by, Value*& v, Value* base, const Tensor& value) {
  Value* seen = std::exchange(v, operands(*v->producer)[0]);
  auto& view = *seen->producer;
  auto past_detach = [&](const Tensor& t) {  // the base keeps its history, and the view has none
    trace_check(!carries_gradient(value_of(value)), gradients, by.name())
        << "writes what may carry a gradient through detach(), which a trace cannot record"
        << hint("write it under no_grad(), or detach() it too");
    return with_history(handle(v), t);
  };
  sym::Comparing as_recorded(by.name(), sym::Comparing::assumes);
  auto geometry = geometry_of(seen, int64_t(0));
  for (auto& step : geometry.steps())
    trace_check(step.kind != Kind::as_dtype, memory, by.name())
        << "writes through view(dtype), which a trace cannot record yet";
  if (!view.op->differentiable) return past_detach(value);
  op::Args args = view.args.clone();
  args.each_tensor([&](size_t slot, Tensor& t) {
    if (slot == 0) t = handle(v);
  });
  op::Call c(*view.op, args.values());
  op::Mode::With on(this);
  Inside here(this);
  auto* strided = strided_step(geometry);
  Origin origin{v, int64_t(0), false};
  if (strided) {
    check_inside(*view.op, *strided, origin = origin_of(seen, base));
    v = origin.in;
  }
  auto placed = [&](const Tensor& t) {
    return strided ? strided_into(handle(v), *strided, origin.start, t)
                   : autograd::view_gradient(c, OfOneResult(c, seen->result, t))[0];
  };
  bool part = std::ranges::any_of(geometry.steps(), [](auto& s) {
    return s.kind == Kind::slice || s.kind == Kind::select || s.kind == Kind::diagonal ||
           s.kind == Kind::strided;
  });
  if (!part) return placed(value);
  Tensor ones = invoke("full", {value.sizes(), Scalar(true), DType::Bool});
  Tensor merged = invoke("where", {placed(ones), placed(value), handle(v)});
  return origin.detached ? past_detach(merged) : merged;
}

}  // namespace facula::graph
