// Arithmetic of two operands, element by element.
#include <cmath>

#include "facula/catalog/no_derivative.h"
#include "facula/catalog/pointwise_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::pointwise_helpers;

namespace {
Expr checked(Expr divisor) { return is_integral(divisor.dtype()) ? loop::divisor(divisor) : divisor; }
// PyTorch refuses to subtract bool tensors; suggest the operator the user probably meant.
std::vector<DType> no_bools(const Call& c) {
  for (auto& v : c.args().first(2))
    runtime_check(v.is_none() || operand_dtype(v) != DType::Bool, c.name())
        << "Subtraction, the `-` operator, with a bool tensor is not supported."
        << hint("^ or logical_xor() tells where two differ; ~x is what 1 - x would be");
  return {computing_dtype(c.op(), c.args())};
}
// The factor of the second operand of a sum: of the category of the dtype that it is computed in.
Expr factor(const LoopCall& c, Expr alpha) {
  Category given = category(operand_dtype(c["alpha"])), computed = category(alpha.dtype());
  runtime_check(given != Category::boolean || alpha.dtype() == DType::Bool, c.name())
      << "Boolean alpha only supported for Boolean results, got alpha=True for " << alpha.dtype()
      << hint("alpha=1");
  runtime_check(given <= std::max(computed, Category::integral), c.name())
      << "for " << (computed <= Category::integral ? "integral" : "non-complex")
      << " input tensors, argument alpha must not be a "
      << (given == Category::complex ? "complex" : "floating point") << " number";
  return alpha;
}
// Eager sums are the smallest calls of all: the third argument by its place, and 1 at once.
void fitting_factor(const Call& c) {
  auto& alpha = c.at(2);
  if (alpha.tag == Tag::scalar &&
      !(alpha.scalar.category() == Category::integral && alpha.scalar.to_int() == 1))
    must_fit(c, "alpha");
}
// The factor of what is taken away. Of a real number the imaginary part stays 0: only complex ones are negated whole.
Expr negative_factor(const LoopCall& c, Expr alpha) {
  Expr f = factor(c, alpha);
  bool real_number = is_complex(f.dtype()) && category(operand_dtype(c["alpha"])) != Category::complex;
  return real_number ? cast(-real(f), f.dtype()) : -f;
}
// a + f * b, rounded once.
Expr plus(Expr a, Expr f, Expr b) { return is_floating(a.dtype()) ? fma(f, b, a) : a + f * b; }
// The divisor of a remainder: a number is rounded to the dtype of the tensor.
Expr modulus(const LoopCall& c, Expr y) { return checked(round_to(y, computing_dtype(c.op(), c.args()))); }
// Numbers 0.5 and -0.5 are roots as PyTorch takes them, of -0 and -inf as well, but in float16.
Expr power(const LoopCall& c, Expr x, Expr n) {
  Expr y = pow(x, n);
  bool half = c.op().promote == Promote::same && computing_dtype(c.op(), c.args()) == DType::Float16;
  if (!c.tensor("exponent").impl()->wrapped_number || !is_floating(x.dtype()) || half) return y;
  return select(eq(n, 0.5), sqrt(x), select(eq(n, -0.5), rsqrt(x), y));
}
}  // namespace

FACULA_FAMILY(arithmetic) {
  define("add(Scalar|Tensor self, Scalar|Tensor other, *, Scalar alpha=1) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .doc("self + alpha * other. For bool: logical or.")
      .check(fitting_factor)
      .in_place()
      .pointwise([](const LoopCall& c, Expr a, Expr b, Expr alpha) {
        if (a.dtype() == DType::Bool) return a | (b & factor(c, alpha));
        return plus(a, factor(c, alpha), b);
      })
      .samples(binary_samples());
  define("sub(Scalar|Tensor self, Scalar|Tensor other, *, Scalar alpha=1) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .doc("self - alpha * other.")
      .grad_name([](const Call& c) { return is_number(c["self"]) ? grad_name("Rsub", 1) : ""; })
      .alias("subtract")
      .result(no_bools)
      .check(fitting_factor)
      .in_place()
      .pointwise(
          [](const LoopCall& c, Expr a, Expr b, Expr alpha) { return plus(a, negative_factor(c, alpha), b); })
      .samples(binary_samples());
  define("rsub(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .doc("other - alpha * self.")
      .result(no_bools)
      .check(fitting_factor)
      .pointwise(
          [](const LoopCall& c, Expr a, Expr b, Expr alpha) { return plus(b, negative_factor(c, alpha), a); })
      .samples(binary_samples());
  define("mul(Scalar|Tensor self, Scalar|Tensor other) -> Tensor")
      .dtypes(d::stored)
      .doc("self * other. For bool: logical and.")
      .alias("multiply")
      .in_place()
      .pointwise([](Expr a, Expr b) { return a.dtype() == DType::Bool ? a & b : a * b; })
      .samples(binary_samples());
  define("div(Scalar|Tensor self, Scalar|Tensor other) -> Tensor")
      .doc("self / other, true division: integers give the default floating dtype.")
      .grad_name([](const Call& c) { return is_number(c["self"]) ? grad_name("Mul") : ""; })
      .alias("divide")
      .alias("true_divide")
      .dtypes(floats)
      .promote(Promote::int_to_float)
      .in_place()
      .pointwise([](Expr a, Expr b) { return a / b; })
      .samples(binary_samples(0.5, 3));
  define("div.mode(Scalar|Tensor self, Scalar|Tensor other, *, str? rounding_mode) -> Tensor")
      .grad_name("Div", 2)
      .doc("self / other, rounded: rounding_mode None (true division), 'floor' or 'trunc'.")
      .alias("divide")
      .dtypes(d::integral | d::floating)
      .in_place()
      .checks()
      .pointwise([](const LoopCall& c, Expr a, Expr b) {
        if (!c.has("rounding_mode"))
          return cast(a, is_differentiable(a.dtype()) ? a.dtype() : default_dtype()) /
                 cast(b, is_differentiable(b.dtype()) ? b.dtype() : default_dtype());
        auto mode = c.str("rounding_mode");
        runtime_check(mode == "floor" || mode == "trunc", "div")
            << "rounding_mode must be None, 'trunc' or 'floor', not '" << mode << "'";
        supported_check(!is_complex(a.dtype()), "div")
            << "rounding_mode='" << mode << "' is not defined for " << a.dtype();
        if (mode == "floor") return floordiv(a, checked(b));
        if (is_integral(a.dtype())) return truncdiv(a, checked(b));
        return trunc(round_to(a / b, computing_dtype(c.op(), c.args())));
      })
      .result([](const Call& c) {
        Promotion p;
        for (auto& t : c.all_tensors()) p.add(t);
        DType r = p.result();
        return std::vector<DType>{c.has("rounding_mode") || is_differentiable(r) ? r : default_dtype()};
      })
      .samples(binary_samples(0.5, 3).with("rounding_mode", {"'floor'", "'trunc'"}));
  define("floor_divide(Scalar|Tensor self, Scalar|Tensor other) -> Tensor")
      .doc("floor(self / other).")
      .dtypes(d::integral | d::floating)
      .grad_name(catalog::not_implemented())
      .vjp(catalog::NoDerivative{"aten::floor_divide"})
      .in_place()
      .checks()
      .pointwise([](Expr a, Expr b) { return floordiv(a, checked(b)); })
      .samples(binary_samples(0.5, 3));
  define("remainder(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("self - other * floor(self / other): the sign of the divisor, as Python's %.")
      .grad_name([](const Call& c) { return grad_name("Remainder", is_number(c["other"]) ? 0 : 1); })
      .dtypes(d::integral | d::floating)
      .in_place()
      .checks()
      .pointwise([](const LoopCall& c, Expr a, Expr b) { return remainder(a, modulus(c, b)); })
      .samples(binary_samples(0.5, 3));
  define("fmod(Tensor self, Tensor|Scalar other) -> Tensor")
      .grad_name([](const Call& c) { return grad_name("Fmod", is_number(c["other"]) ? 0 : 1); })
      .doc("C's fmod: the sign of the dividend.")
      .dtypes(d::integral | d::floating)
      .in_place()
      .checks()
      .pointwise([](const LoopCall& c, Expr a, Expr b) { return fmod(a, modulus(c, b)); })
      .samples(binary_samples(0.5, 3));
  define("pow(Tensor|Scalar self, Tensor|Scalar exponent) -> Tensor")
      .doc("self to the power of exponent.")
      .grad_name([](const Call& c) {
        return grad_name("Pow", is_number(c["self"]) ? 2 : is_number(c["exponent"]) ? 0 : 1);
      })
      .dtypes(d::numeric)
      .check([](const Call& c) {
        auto& e = c["exponent"];
        runtime_check(e.tag != Tag::scalar || e.scalar.category() != Category::integral ||
                          e.scalar.to_int() >= 0 || !is_integral(computing_dtype(c.op(), c.args())),
                      c.name())
            << "Integers to negative integer powers are not allowed." << hint("x.float() ** ", e.scalar);
        if (e.tag != Tag::scalar || std::abs(e.scalar.to_complex()) <= 127) return;
        DType d = computing_dtype(c.op(), c.args());
        if (is_integral(d) || compute_type(d) != d) must_fit(c, "exponent");
      })
      .in_place()
      .pointwise(power)
      .samples(samples({{{{"self", tensor({3, 4}, 0.5, 2)}, {"exponent", tensor({3, 4})}}},
                        {{{"self", tensor({2, 3}, 0.5, 2)}, {"exponent", tensor({3})}}}}));
  define("float_power(Tensor|Scalar self, Tensor|Scalar exponent) -> Tensor")
      .grad_name([](const Call& c) {
        return grad_name("Pow", is_number(c["self"]) ? 2 : is_number(c["exponent"]) ? 0 : 1);
      })
      .dtypes(d::stored)
      .doc("self to the power of exponent in double precision.")
      .result([](const Call& c) {
        bool complex = false;
        for (auto name : {"self", "exponent"}) complex |= is_complex(operand_dtype(c[name]));
        return std::vector<DType>{complex ? DType::Complex128 : DType::Float64};
      })
      .promote(Promote::none)
      .exact_out()
      .exact_self("base")
      .in_place()
      .pointwise([](const LoopCall& c, Expr a, Expr b) {
        DType t = is_complex(a.dtype()) || is_complex(b.dtype()) ? DType::Complex128 : DType::Float64;
        return power(c, cast(a, t), cast(b, t));
      })
      .samples(
          {"self[3, 4](0.5, 2), exponent[4]", "self[](0.5, 2), exponent[]", "self[5](0.5, 2), exponent=2"});
  define("atan2(Tensor self, Tensor other) -> Tensor")
      .doc("Angle of the point (other, self), in radians.")
      .alias("arctan2")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .in_place()
      .pointwise([](Expr a, Expr b) { return atan2(a, b); })
      .samples(binary_samples(0.5, 2));
  define("maximum(Tensor self, Tensor other) -> Tensor")
      .doc("The larger of both; NaN wins.")
      .dtypes(d::real)
      .in_place()
      .pointwise([](Expr a, Expr b) { return max(a, b); })
      .samples(binary_samples());
  define("minimum(Tensor self, Tensor other) -> Tensor")
      .doc("The smaller of both; NaN wins.")
      .dtypes(d::real)
      .in_place()
      .pointwise([](Expr a, Expr b) { return min(a, b); })
      .samples(binary_samples());
  define("copysign(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("|self| with the sign of other.")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .in_place()
      .pointwise([](Expr a, Expr b) { return copysign(a, b); })
      .samples(binary_samples(0.5, 2));
}
