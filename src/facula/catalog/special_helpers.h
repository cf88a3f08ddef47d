// Helpers of the families special and normal_distribution.
#pragma once
#include <limits>
#include <span>

#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::special_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity(), kPi = 3.14159265358979323846;
inline Expr wide(double v) { return constant(v, DType::Float64); }
inline Expr horner(Expr x, std::span<const double> c) {
  Expr y = wide(c.back());
  for (size_t k = c.size() - 1; k-- > 0;) y = y * x + c[k];
  return y;
}
// Declares a function of one number; `f` computes its float64 value.
inline Definer special_function(const char* schema, const char* doc, Expr (*f)(Expr), double low,
                                double high) {
  return define(schema)
      .doc(doc)
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .pointwise([f](Expr x) { return cast(f(cast(x, DType::Float64)), x.dtype()); })
      .samples(unary_samples(low, high));
}

}  // namespace facula::catalog::special_helpers
