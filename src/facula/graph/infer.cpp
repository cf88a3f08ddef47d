#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/tensor/promotion.h"

namespace facula::graph {

using op::Tag;
using op::Type;
using Argument = op::Value;

namespace {

DType result_dtype(const op::Operator& o, DType computing) {
  switch (o.result_type) {
    case op::ResultType::boolean: return DType::Bool;
    case op::ResultType::int64: return DType::Int64;
    case op::ResultType::real: return real_of(computing);
    default: return computing;
  }
}

std::vector<op::Meta> infer_pointwise(const op::Operator& o, std::span<const Argument> args) {
  std::vector<Tensor> operands;
  op::any_tensor(args, [&](TensorImpl* t) {
    if (t) operands.push_back(Tensor(Ref<TensorImpl>::share(t)));
    return false;
  });
  Device device{};
  std::vector<SymSpan> sizes;
  for (auto& t : operands) {
    sizes.push_back(t.sizes());
    if (t.dim() || operands.size() == 1) {
      if (device == Device{}) device = t.device();
      else
        runtime_check(t.device() == device, o.name())
            << "tensors are on different devices: " << device << " and " << t.device();
    }
  }
  DType computing = compute_dtype(o, args);
  if (o.strict) op::check_accepted(o, operands.at(0).dtype());
  op::check_accepted(o, computing);  // for strict operators too: a complex number with real tensors
  Dims shape = broadcast_sizes(o.name(), sizes);
  Dims strides;
  bool contiguous = true;
  for (auto& t : operands) contiguous &= t.is_contiguous();
  if (!contiguous) strides = dense_strides_like(shape, operands);
  std::vector<op::Meta> metas;
  auto types = o.dtype_rule ? o.dtype_rule(op::Call(o, args))
                            : std::vector<DType>(o.schema.returns.size(), result_dtype(o, computing));
  for (DType d : types) metas.push_back({shape, d, device, strides});
  return metas;
}

}  // namespace

DType compute_dtype(const op::Operator& o, std::span<const Argument> args) {
  return op::computing_dtype(o, args);
}

// True if strides indicate channels_last. As in PyTorch's suggest_memory_format, gaps do not matter, and an ambiguous
// tensor is contiguous.
static bool suggests_channels_last(const Tensor& t) {
  auto sizes = t.sizes(), strides = t.strides();
  if ((t.dim() != 4 && t.dim() != 5) || strides[1].hint() == 0) return false;
  int64_t least = 0;
  auto fits = [&](size_t d) {
    int64_t n = sizes[d].hint(), s = strides[d].hint();
    if (n == 0 || s < least || (d == 0 && least == strides[1].hint())) return false;
    least = s * std::max<int64_t>(n, 1);
    return true;
  };
  if (!fits(1)) return false;
  for (size_t d = sizes.size(); --d >= 2;)
    if (!fits(d)) return false;
  return fits(0);
}

std::vector<op::Meta> infer_by_calls(const op::Call& c,
                                     const std::function<op::Results(const op::Call&)>& f) {
  op::Args args(c.args(), c.op().schema);
  std::vector<InputSpec> specs;
  args.each_tensor([&](size_t, Tensor& t) {
    if (t.defined()) specs.push_back(spec_of(t));
  });
  auto* current = sym::Shapes::current();
  auto shapes = current ? std::shared_ptr<sym::Shapes>(std::shared_ptr<void>(), current)
                        : std::make_shared<sym::Shapes>();
  autograd::GradMode off(false);
  auto calls = [&](std::span<const Tensor> inputs) {
    size_t k = 0;
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = inputs[k++];
    });
    return f(op::Call(c.op(), args.values())).to_vector();
  };
  Graph g = trace(shapes, specs, calls, c.name());
  std::vector<op::Meta> metas;
  for (auto* v : g.outputs) {
    auto& t = v->tensor;
    metas.push_back({Dims(t.sizes()), t.dtype(), t.device(), Dims(t.strides())});
  }
  return metas;
}

std::vector<op::Meta> infer(const op::Operator& o, std::span<const Argument> args) {
  op::Call c(o, args);
  if (o.is<op::Pointwise>()) return infer_pointwise(o, args);
  if (auto* foreign = o.as<op::Foreign>()) return foreign->functions->infer(c);
  std::vector<op::Meta> metas;
  Device device{};
  DType first = default_dtype();
  bool has_tensors = op::any_tensor(args, [&](TensorImpl* t) {
    if (!t) return false;
    device = t->device;
    first = t->dtype;
    return true;
  });
  if (auto* view = o.as<op::View>()) {
    Tensor base = c.tensor(o.schema.parameters[0].name);
    for (auto& g : view->rule(c, op::Geometry(o.name(), base)))
      metas.push_back({Dims(g.sizes()), g.dtype(base.dtype()), base.device(), Dims(g.strides())});
    return metas;
  }
  auto* rules = o.shaped();
  internal_check(rules) << o.schema.full_name() << " has no shape rule";
  if (has_tensors && o.promote != op::Promote::int_to_float) op::check_accepted(o, first);
  auto shapes = rules->shape(c);
  if (o.promote == op::Promote::int_to_float && !is_differentiable(first)) first = default_dtype();
  auto types = o.dtype_rule ? o.dtype_rule(c) : std::vector<DType>(shapes.size(), result_dtype(o, first));
  internal_check(types.size() == shapes.size())
      << o.schema.full_name() << ": " << types.size() << " dtypes for " << shapes.size() << " shapes";
  size_t channels_last = 0;  // rank of an argument in channels_last; 0: there is none
  for (auto& name : rules->format_of) {
    if (c[name].tag == Tag::tensors) {
      auto tensors = c.tensors(name);
      if (std::ranges::all_of(tensors, suggests_channels_last)) channels_last = size_t(tensors[0].dim());
      continue;
    }
    Tensor t = c.has(name) ? c.tensor(name) : Tensor();
    if (t.defined() && !t.is_contiguous() && t.is_channels_last()) channels_last = size_t(t.dim());
  }
  Tensor model = rules->strides_of.empty() ? Tensor() : c.tensor(rules->strides_of);
  for (size_t i = 0; i < shapes.size(); ++i) {
    Dims strides;
    if (model.defined() && !model.is_contiguous())
      strides = dense_strides_like(shapes[i], std::span(&model, 1));
    if (channels_last && shapes[i].size() == channels_last) strides = channels_last_strides(shapes[i]);
    metas.push_back({shapes[i], types[i], device, std::move(strides)});
  }
  return metas;
}

}  // namespace facula::graph
