#include "facula/graph/trace.h"

#include <algorithm>

#include "facula/base/settings.h"
#include "facula/graph/passes.h"
#include "facula/op/registry.h"

namespace facula::graph {

using op::Args;
using op::Form;
using op::Results;

InputSpec symbolic_spec(const Tensor& t, sym::Shapes& shapes) {
  InputSpec spec{t.dtype(), {}, {}, t.impl()->wrapped_number};
  for (auto s : t.sizes()) {
    int64_t n = s.hint();
    SymInt size = n;
    if (n > 1) {  // equal hints share a symbol, so that equalities need no guard of their own
      size = SymInt(int64_t(-1));
      for (int k = 0; k < shapes.symbol_count(); ++k)
        if (shapes.symbol(k).hint() == n) size = shapes.symbol(k);
      if (!size.is_symbolic()) size = shapes.fresh("s" + std::to_string(shapes.symbol_count()), n);
    }
    spec.sizes.push_back(size);
  }
  if (t.is_contiguous()) return spec;
  if (!t.is_non_overlapping_and_dense()) {
    spec.strides = Dims(t.strides());
    return spec;
  }
  Ints order;
  for (int d = 0; d < t.dim(); ++d) order.push_back(d);
  auto hints = t.strides();
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return hints[size_t(a)].hint() > hints[size_t(b)].hint(); });
  spec.strides.resize(size_t(t.dim()));
  SymInt next = int64_t(1);
  for (int k = t.dim() - 1; k >= 0; --k) {
    auto d = size_t(order[size_t(k)]);
    spec.strides[d] = next;
    next *= spec.sizes[d];
  }
  return spec;
}

namespace {

// A handle for users: re-pointed by in-place calls, while the value's own tensor stays.
Tensor handle(Value* v) {
  auto& t = v->tensor;
  Tensor h(
      make_ref<TensorImpl>(Storage(), Dims(t.sizes()), Dims(t.strides()), SymInt(), t.dtype(), t.device()));
  h.impl()->traced = v;
  h.impl()->wrapped_number = t.impl()->wrapped_number;
  return h;
}

class Tracer final : public op::Mode {
 public:
  explicit Tracer(Graph* g) : graph_(g) {}
  bool records() const override { return true; }

  Results take(const op::Operator& o, std::span<const op::Value> args, Form form,
               std::span<const Tensor>) override {
    runtime_check(form != Form::out, o.name())
        << "out= cannot be used inside a composite or a compiled function";
    Args owned(args, o.schema);
    owned.each_tensor([&](size_t, Tensor& t) {
      if (t.defined() && !t.is_traced()) t = handle(constant(t));
    });
    auto values = owned.values();
    Results results = o.calls() ? inline_calls(o, values) : record(o, values);
    if (form != Form::in_place) return results;
    Tensor target(Ref<TensorImpl>::share(values[0].tensor));
    auto* producer = value_of(target)->producer;
    runtime_check(!producer || !producer->op->is<op::View>(), o.name())
        << "an in-place write through a view cannot be traced"
        << hint("write the functional form, or slice_scatter");
    runtime_check(results[0].dim() == target.dim() &&
                      std::equal(target.sizes().begin(), target.sizes().end(), results[0].sizes().begin()),
                  o.name())
        << "the result of shape " << to_string(results[0].sizes()) << " does not fit in place into "
        << to_string(target.sizes());
    Tensor value = results[0];
    if (value.dtype() != target.dtype()) {
      op::Value cast_args[] = {value, target.dtype()};
      value = take(op::get("to_dtype"), cast_args, Form::functional, {})[0];
    }
    target.impl()->traced = value.impl()->traced;
    return Results(target);
  }

  Value* constant(const Tensor& t) {
    for (auto& v : graph_->values())
      if (v->constant.defined() && v->constant.is_same(t)) return v.get();
    return graph_->add_constant(t);
  }

 private:
  Results inline_calls(const op::Operator& o, std::span<const op::Value> values) {
    With on(this);
    return (*o.calls())(op::Call(o, values));
  }

  Results record(const op::Operator& o, std::span<const op::Value> values) {
    runtime_check(!o.schema.mutates(), o.name()) << "writes to its arguments, which a trace cannot record";
    std::vector<Value*> made;
    for (auto& m : infer(o, values))
      made.push_back(
          graph_->add_value(m.sizes,
                            m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes),
                            m.dtype, m.device));
    graph_->add_node(o, values, made);
    Results results;
    for (auto* v : made) results.push_back(handle(v));
    return results;
  }

  Graph* graph_;
};

}  // namespace

Graph trace(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs,
            const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f, const char*) {
  Graph g;
  g.shapes = shapes;
  std::vector<Tensor> given;
  for (auto& spec : inputs) {
    auto* v =
        g.add_value(spec.sizes,
                    spec.strides.size() == spec.sizes.size() ? spec.strides : contiguous_strides(spec.sizes),
                    spec.dtype);
    v->tensor.impl()->wrapped_number = spec.number;
    g.inputs.push_back(v);
    given.push_back(handle(v));
  }
  Tracer tracer(&g);
  sym::Shapes::With symbols(*shapes);
  std::vector<Tensor> results;
  {
    op::Mode::With on(&tracer);
    results = f(given);
  }
  for (auto& t : results)
    g.outputs.push_back(!t.defined() ? nullptr : t.is_traced() ? value_of(t) : tracer.constant(t));
  for (size_t i = 0; i < given.size(); ++i)
    if (value_of(given[i]) != g.inputs[i]) g.mutated.push_back({int(i), value_of(given[i])});
  remove_dead(g);
  if (settings().verify) verify(g);
  return g;
}

}  // namespace facula::graph
