#include "facula/catalog/no_derivative.h"

#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/op/helpers.h"
#include "facula/op/operands.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace facula::catalog {

namespace {

Tensor arrived(const Vjp& v) {
  for (size_t k = 0; k < v.call().op().schema.returns.size(); ++k)
    if (Tensor g = v.grad(int(k)); g.defined()) return g;
  return {};
}

// By operand, from the `first` on. The call that raises is an operator, so that graphs of gradients can hold it and raise
// only where it is needed.
Grads unknown(const Vjp& v, size_t first, std::string_view of) {
  Tensor g = arrived(v);
  Grads out;
  each_operand(v.call(), [&](const op::Operand& o) {
    if (o.tensor < int(first)) return;
    out.resize(std::max(out.size(), size_t(o.tensor) + 1));
    bool wanted = g.defined() && o.value.tag == Tag::tensor && o.value.tensor &&
                  is_differentiable(o.value.tensor->dtype) && v.needs(o.name, std::max(o.item, 0));
    if (wanted) out[size_t(o.tensor)] = _no_derivative(g, o.value.tensor->sizes, o.value.tensor->dtype, of);
  });
  return out;
}

}  // namespace

Grads NoDerivative::operator()(const Vjp& v) const {
  if (!of.empty()) return unknown(v, 0, of);
  Grads out = unknown(v, 1, v.call().str("of"));
  out[0] = v.grad();
  return out;
}

Tensor no_derivative(const Vjp& v, ParameterName operand, std::string_view of) {
  if (!v.needs(operand)) return {};
  Tensor x = v.call().tensor(operand), g = arrived(v);
  return g.defined() ? _no_derivative(g, x.sizes(), x.dtype(), of) : Tensor();
}

Tensor without_derivative(const Tensor& result, const std::vector<Tensor>& operands, std::string_view of) {
  bool recorded = Mode::current() || (autograd::grad_enabled() && std::ranges::any_of(operands, [](auto& t) {
                                        return t.defined() && t.requires_grad();
                                      }));
  return recorded && is_differentiable(result.dtype()) ? _without_derivative(result, operands, of) : result;
}

}  // namespace facula::catalog

FACULA_FAMILY(no_derivative) {
  define("_no_derivative(Tensor grad, SymInt[] size, dtype dtype, str of) -> Tensor")
      .doc("The gradient of an operand that no rule gives: raises NotImplementedError when it is computed.")
      .bind(hidden)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("dtype")}; })
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .non_differentiable("the call raises")
      .library("no_derivative")
      .reference([](const Tensor& grad, Sizes, DType, std::string_view of) {
        bool fallback = of.starts_with("aten::");
        supported_check(false, "") << (fallback ? "derivative for " : "the derivative for '") << of
                                   << (fallback ? " is not implemented" : "' is not implemented.");
        return grad;
      });
  define("_without_derivative(Tensor self, Tensor[] operands, str of) -> Tensor")
      .doc("self, as the result of a call of `of` on the operands, which has no derivative.")
      .bind(hidden)
      .grad_name(catalog::not_implemented())
      .composite([](const Tensor& self, const std::vector<Tensor>&, std::string_view) { return clone(self); })
      .vjp(catalog::NoDerivative{})
      .samples({"self[3], operands{[3], [2]}, of='aten::bincount'"});
}
