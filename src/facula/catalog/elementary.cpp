// Elementary functions, element by element.
#include "facula/catalog/pointwise_helpers.h"
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::pointwise_helpers;

namespace {
// A function of one floating argument; integers become the default floating dtype, as PyTorch's.
Definer elementary(const char* name, const char* doc, Expr (*f)(Expr), double low = -2, double high = 2) {
  return define(std::string(name) + "(Tensor self) -> Tensor")
      .doc(doc)
      .dtypes(floats)
      .promote(Promote::int_to_float)
      .in_place()
      .pointwise(f)
      .samples(unary_samples(low, high));
}
}  // namespace

FACULA_FAMILY(elementary) {
  elementary("exp", "e to the power of self.", exp);
  elementary("exp2", "2 to the power of self.", exp2).bind(function | method | special);
  elementary("expm1", "exp(self) - 1, exact near 0.", expm1).bind(function | method | special);
  elementary("log", "Natural logarithm.", log, 0.1, 3);
  elementary("log2", "Logarithm to base 2.", log2, 0.1, 3);
  elementary("log10", "Logarithm to base 10.", log10, 0.1, 3);
  elementary("log1p", "log(1 + self), exact near 0.", log1p, -0.5, 3)
      .grad_name("Log1P")
      .bind(function | method | special);
  elementary("sqrt", "Square root.", sqrt, 0.1, 3);
  elementary("rsqrt", "1 / sqrt(self).", rsqrt, 0.1, 3);
  elementary("reciprocal", "1 / self.", reciprocal, 0.5, 3);
  elementary("sin", "Sine.", sin);
  elementary("cos", "Cosine.", cos);
  elementary("tan", "Tangent.", tan, -1, 1);
  elementary("asin", "Arc sine.", asin, -0.9, 0.9).alias("arcsin");
  elementary("acos", "Arc cosine.", acos, -0.9, 0.9).alias("arccos");
  elementary("atan", "Arc tangent.", atan).alias("arctan");
  elementary("sinh", "Hyperbolic sine.", sinh);
  elementary("cosh", "Hyperbolic cosine.", cosh);
  elementary("tanh", "Hyperbolic tangent.", tanh);
  elementary("asinh", "Inverse hyperbolic sine.", asinh).alias("arcsinh");
  elementary("acosh", "Inverse hyperbolic cosine.", acosh, 1.1, 3).alias("arccosh");
  elementary("atanh", "Inverse hyperbolic tangent.", atanh, -0.9, 0.9).alias("arctanh");
  elementary("erf", "Error function.", erf).bind(function | method | special).dtypes(d::floating);
  elementary("erfc", "Complementary error function, 1 - erf(self).", erfc)
      .bind(function | method | special)
      .dtypes(d::floating);
  elementary("sigmoid", "1 / (1 + exp(-self)).", sigmoid).bind(function | method | nn_functional);
}
