// Arithmetic, comparison, logic and elementary functions, element by element.
#include <cmath>
#include <limits>

#include "facula/catalog/differences.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/repeated.h"
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
constexpr auto floats = d::floating | d::complex;
constexpr auto bits = d::integral | d::boolean;

Expr zero_like(Expr x) { return constant(Scalar(int64_t(0)), x.dtype()); }
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
constexpr const char* kMinusAlpha = "int32 error: .* with alpha is the number 2147483648";
constexpr const char* kMinusAlphaFits = "PyTorch looks whether -alpha fits";
// A value converted to `d` is rounded to it, also if a fused kernel does not store it.
Expr converted(Expr x, DType d) { return round_to(cast(x, compute_type(d)), d); }
Expr truth(Expr x) { return cast(x, DType::Bool); }

// The result dtype of where().
DType chosen_dtype(const Call& c) {
  Promotion p;
  for (auto* name : {"self", "other"}) {
    auto& v = c[name];
    if (v.tag == Tag::tensor) p.add(c.tensor(name));
    else p.add(v.tag == Tag::integer ? Scalar(int64_t(0)) : v.scalar);
  }
  return p.result();
}

Tensor invoked(const char* name, std::initializer_list<Value> args) {
  std::vector<Value> given(args);
  return op::call(op::get(name), given)[0];
}

// A function of one floating argument; integers become the default floating dtype, as PyTorch's.
Definer elementary(const char* name, const char* doc, Expr (*f)(Expr), double low = -2, double high = 2) {
  return define(std::string(name) + "(Tensor self) -> Tensor")
      .doc(doc)
      .dtypes(floats)
      .promote(Promote::int_to_float)
      .pointwise(f)
      .samples(unary_samples(low, high));
}

bool is_number(const Value& v) {
  return v.tag == Tag::scalar || v.tag == Tag::integer || (v.tag == Tag::tensor && v.tensor->wrapped_number);
}

}  // namespace

FACULA_FAMILY(pointwise) {
  define("add(Scalar|Tensor self, Scalar|Tensor other, *, Scalar alpha=1) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .doc("self + alpha * other. For bool: logical or.")
      .check(fitting_factor)
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
      .pointwise(
          [](const LoopCall& c, Expr a, Expr b, Expr alpha) { return plus(a, negative_factor(c, alpha), b); })
      .differs(kMinusAlpha, kMinusAlphaFits)
      .differs("int32 error: .* with alpha is the number 2147483648", "PyTorch looks whether -alpha fits")
      .samples(binary_samples());
  define("rsub(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .doc("other - alpha * self.")
      .result(no_bools)
      .no_in_place()
      .check(fitting_factor)
      .pointwise(
          [](const LoopCall& c, Expr a, Expr b, Expr alpha) { return plus(b, negative_factor(c, alpha), a); })
      .differs(kMinusAlpha, kMinusAlphaFits)
      .samples(binary_samples());
  define("mul(Scalar|Tensor self, Scalar|Tensor other) -> Tensor")
      .dtypes(d::stored)
      .doc("self * other. For bool: logical and.")
      .alias("multiply")
      .pointwise([](Expr a, Expr b) { return a.dtype() == DType::Bool ? a & b : a * b; })
      .samples(binary_samples());
  define("div(Scalar|Tensor self, Scalar|Tensor other) -> Tensor")
      .differs(catalog::kComplexZeros, catalog::kSignsOfZeros)
      .doc("self / other, true division: integers give the default floating dtype.")
      .grad_name([](const Call& c) { return is_number(c["self"]) ? grad_name("Mul") : ""; })
      .alias("divide")
      .alias("true_divide")
      .dtypes(floats)
      .promote(Promote::int_to_float)
      .pointwise([](Expr a, Expr b) { return a / b; })
      .samples(binary_samples(0.5, 3));
  define("div.mode(Scalar|Tensor self, Scalar|Tensor other, *, str? rounding_mode) -> Tensor")
      .grad_name("Div", 2)
      .doc("self / other, rounded: rounding_mode None (true division), 'floor' or 'trunc'.")
      .alias("divide")
      .dtypes(d::integral | d::floating)
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
      .pointwise([](Expr a, Expr b) { return floordiv(a, checked(b)); })
      .samples(binary_samples(0.5, 3));
  define("remainder(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("self - other * floor(self / other): the sign of the divisor, as Python's %.")
      .grad_name([](const Call& c) { return grad_name("Remainder", is_number(c["other"]) ? 0 : 1); })
      .dtypes(d::integral | d::floating)
      .pointwise([](const LoopCall& c, Expr a, Expr b) { return remainder(a, modulus(c, b)); })
      .samples(binary_samples(0.5, 3));
  define("fmod(Tensor self, Tensor|Scalar other) -> Tensor")
      .grad_name([](const Call& c) { return grad_name("Fmod", is_number(c["other"]) ? 0 : 1); })
      .doc("C's fmod: the sign of the dividend.")
      .dtypes(d::integral | d::floating)
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
      .pointwise(power)
      .differs(kSteps16, kRoundedOnce)
      .differs(kComplexLimit, kByParts)
      .differs(
          "b?float\\d+ gradient of exponent: (nan|inf) for (-?0|-?inf|finite) at exponent=\\S+, self=1e\\+300$",
          "1e300 is infinite in this dtype")
      .differs(
          "float16 gradient of self: nan for (-?0|-?inf|finite) at self=-\\S+, exponent=[56]\\.\\d+e-0[58]$",
          "the root of a negative number, as the value is; PyTorch's exponent - 1 is rounded to -1")
      .differs(
          "complex\\d+ (value|gradient of \\S+): \\(-?[\\d.e+-]+, -?[\\d.e+-]+\\) for \\(-?[\\d.e+-]+, -?[\\d.e+-]+\\) at self=\\([\\d.]+e[+-]\\d+, ",
          "the exponential of a large logarithm has fewer digits in PyTorch")
      .differs(
          "complex\\d+ (value|gradient of \\S+): \\((nan, nan|finite, finite)\\) for \\((-?0|-?inf|nan(?=, -?inf)), \\S+\\) at",
          "powers of 0 and infinity have no angle; those of -1 and 2 are quotient and product")
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
      .pointwise([](const LoopCall& c, Expr a, Expr b) {
        DType t = is_complex(a.dtype()) || is_complex(b.dtype()) ? DType::Complex128 : DType::Float64;
        return power(c, cast(a, t), cast(b, t));
      })
      .differs("b?float16 gradient of (self|exponent): (finite|-?\\d\\S*) for", kRoundedOnce)
      .samples(
          {"self[3, 4](0.5, 2), exponent[4]", "self[](0.5, 2), exponent[]", "self[5](0.5, 2), exponent=2"});
  define("atan2(Tensor self, Tensor other) -> Tensor")
      .doc("Angle of the point (other, self), in radians.")
      .alias("arctan2")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .pointwise([](Expr a, Expr b) { return atan2(a, b); })
      .differs(kSteps16, kRoundedOnce)
      .differs(
          "b?float\\d+ gradient of (self|other): (-?0|-?inf|finite) for (-?0|nan) at ",
          "the peer divides by the sum of squares, which vanishes for tiny and overflows for large numbers")
      .samples(binary_samples(0.5, 2));
  define("maximum(Tensor self, Tensor other) -> Tensor")
      .doc("The larger of both; NaN wins.")
      .dtypes(d::real)
      .pointwise([](Expr a, Expr b) { return max(a, b); })
      .samples(binary_samples());
  define("minimum(Tensor self, Tensor other) -> Tensor")
      .doc("The smaller of both; NaN wins.")
      .dtypes(d::real)
      .pointwise([](Expr a, Expr b) { return min(a, b); })
      .samples(binary_samples());
  define("copysign(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("|self| with the sign of other.")
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .pointwise([](Expr a, Expr b) { return copysign(a, b); })
      .samples(binary_samples(0.5, 2));

  define("eq(Tensor self, Tensor|Scalar other) -> Tensor")
      .dtypes(d::stored)
      .doc("self == other.")
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return eq(a, b); })
      .samples(binary_samples());
  define("ne(Tensor self, Tensor|Scalar other) -> Tensor")
      .dtypes(d::stored)
      .doc("self != other.")
      .alias("not_equal")
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return ne(a, b); })
      .samples(binary_samples());
  define("lt(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("self < other.")
      .alias("less")
      .dtypes(d::real)
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return a < b; })
      .samples(binary_samples());
  define("le(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("self <= other.")
      .alias("less_equal")
      .dtypes(d::real)
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return a <= b; })
      .samples(binary_samples());
  define("gt(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("self > other.")
      .alias("greater")
      .dtypes(d::real)
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return a > b; })
      .samples(binary_samples());
  define("ge(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("self >= other.")
      .alias("greater_equal")
      .dtypes(d::real)
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return a >= b; })
      .samples(binary_samples());

  define("logical_and(Tensor self, Tensor other) -> Tensor")
      .doc("Both are non-zero.")
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return truth(a) & truth(b); })
      .samples(binary_samples());
  define("logical_or(Tensor self, Tensor other) -> Tensor")
      .doc("At least one is non-zero.")
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return truth(a) | truth(b); })
      .samples(binary_samples());
  define("logical_xor(Tensor self, Tensor other) -> Tensor")
      .doc("Exactly one is non-zero.")
      .result(ResultType::boolean)
      .pointwise([](Expr a, Expr b) { return truth(a) ^ truth(b); })
      .samples(binary_samples());
  define("logical_not(Tensor self) -> Tensor")
      .doc("self is zero.")
      .result(ResultType::boolean)
      .pointwise([](Expr a) { return bit_not(truth(a)); })
      .samples(unary_samples());
  define("bitwise_and(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("Bitwise and; logical for bool.")
      .dtypes(bits | d::wide_unsigned)
      .pointwise([](Expr a, Expr b) { return a & b; })
      .samples(binary_samples());
  define("bitwise_or(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("Bitwise or; logical for bool.")
      .dtypes(bits | d::wide_unsigned)
      .pointwise([](Expr a, Expr b) { return a | b; })
      .samples(binary_samples());
  define("bitwise_xor(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("Bitwise exclusive or; logical for bool.")
      .dtypes(bits | d::wide_unsigned)
      .pointwise([](Expr a, Expr b) { return a ^ b; })
      .samples(binary_samples());
  define("bitwise_not(Tensor self) -> Tensor")
      .exact_out()
      .doc("Bitwise complement; logical for bool.")
      .dtypes(bits)
      .pointwise([](Expr a) { return bit_not(a); })
      .samples(unary_samples());
  define("bitwise_left_shift(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("self << other.")
      .dtypes(d::integral)
      .pointwise([](Expr a, Expr b) { return shl(a, b); })
      .samples(binary_samples(0, 3));
  define("bitwise_right_shift(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("self >> other, arithmetic.")
      .dtypes(d::integral)
      .pointwise([](Expr a, Expr b) { return shr(a, b); })
      .samples(binary_samples(0, 3));

  elementary("exp", "e to the power of self.", exp);
  elementary("exp2", "2 to the power of self.", exp2).bind(function | method | special);
  elementary("expm1", "exp(self) - 1, exact near 0.", expm1).bind(function | method | special);
  elementary("log", "Natural logarithm.", log, 0.1, 3);
  elementary("log2", "Logarithm to base 2.", log2, 0.1, 3);
  elementary("log10", "Logarithm to base 10.", log10, 0.1, 3);
  elementary("log1p", "log(1 + self), exact near 0.", log1p, -0.5, 3)
      .grad_name("Log1P")
      .bind(function | method | special)
      .differs(kComplexInfinite, kByParts)
      .differs(kComplexZeros, kSignsOfZeros);
  elementary("sqrt", "Square root.", sqrt, 0.1, 3);
  elementary("rsqrt", "1 / sqrt(self).", rsqrt, 0.1, 3)
      .differs(
          "complex\\d+ gradient of self: \\(nan, nan\\) for \\(nan, -inf\\) at self=\\(\\S+, [12]\\.\\d+e-\\d+\\)$",
          kByParts);
  elementary("reciprocal", "1 / self.", reciprocal, 0.5, 3);
  elementary("sin", "Sine.", sin);
  elementary("cos", "Cosine.", cos);
  elementary("tan", "Tangent.", tan, -1, 1)
      .differs(
          "complex\\d+ gradient of self: \\(-?[\\d.e-]+, -?[\\d.e-]+\\) for \\(-?[\\d.e-]+, -?[\\d.e-]+\\) at",
          kCancelled);
  elementary("asin", "Arc sine.", asin, -0.9, 0.9).alias("arcsin");
  elementary("acos", "Arc cosine.", acos, -0.9, 0.9)
      .alias("arccos")
      .differs(
          "complex128 value: \\((finite|0), (-0|finite)\\) for \\((finite|0), (0|finite)\\) at self=\\([01], ",
          "acos(0) is pi/2 - 0i (C, annex G), and acos(1 + iy) has the root of the smallest y");
  elementary("atan", "Arc tangent.", atan).alias("arctan").differs(kComplexZeros, kSignsOfZeros);
  elementary("sinh", "Hyperbolic sine.", sinh);
  elementary("cosh", "Hyperbolic cosine.", cosh);
  elementary("tanh", "Hyperbolic tangent.", tanh)
      .differs(
          "complex\\d+ gradient of self: \\(-?[\\d.e-]+, -?[\\d.e-]+\\) for \\(-?[\\d.e-]+, -?[\\d.e-]+\\) at",
          kCancelled);
  elementary("asinh", "Inverse hyperbolic sine.", asinh).alias("arcsinh");
  elementary("acosh", "Inverse hyperbolic cosine.", acosh, 1.1, 3).alias("arccosh");
  elementary("atanh", "Inverse hyperbolic tangent.", atanh, -0.9, 0.9).alias("arctanh");
  elementary("erf", "Error function.", erf).bind(function | method | special).dtypes(d::floating);
  elementary("erfc", "Complementary error function, 1 - erf(self).", erfc)
      .bind(function | method | special)
      .dtypes(d::floating);
  elementary("sigmoid", "1 / (1 + exp(-self)).", sigmoid)
      .bind(function | method | nn_functional)
      .differs("(float32|u?int\\d+) (value|gradient of self): finite for 0 at self=-(88|100)",
               "exp(-self) overflows in PyTorch; the result is subnormal")
      .differs("float(32|64) gradient of self: [\\d.e-]+ for [\\d.e-]+ at self=(7|10|20|33)$", kCancelled);

  define("neg(Tensor self) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .exact_out()
      .doc("-self.")
      .alias("negative")
      .pointwise([](Expr x) {
        runtime_check(x.dtype() != DType::Bool, "neg")
            << "not supported for bool" << hint("~ or logical_not() inverts a mask");
        return -x;
      })
      .samples(unary_samples());
  define("abs(Tensor self) -> Tensor")
      .exact_out([](const Call& c) { return !is_complex(c.dtype("self")); })
      .doc("Absolute value; the modulus of complex numbers.")
      .alias("absolute")
      .dtypes(d::numeric | d::half_complex | d::float8)
      .result(ResultType::real)
      .pointwise([](Expr x) { return abs(x); })
      .samples(unary_samples());
  define("sign(Tensor self) -> Tensor")
      .exact_out()
      .doc("-1, 0 or 1.")
      .dtypes(d::real)
      .pointwise([](Expr x) { return x.dtype() == DType::Bool ? x : sign(x); })
      .samples(unary_samples());
  define("sgn(Tensor self) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .exact_out()
      .doc("sign(self); of complex numbers z / |z|, 0 at 0.")
      .pointwise([](Expr x) { return x.dtype() == DType::Bool ? x : sign(x); })
      .differs("complex\\d+ gradient of self: \\(\\S+, \\S+\\) for \\(-?0, (finite|-?0)\\) at",
               "PyTorch's gradient vanishes beside numbers whose modulus overflows when squared")
      .differs("complex64 gradient of self: \\(0, 0\\) for \\(finite, finite\\) at self=\\(-1, 0\\.5\\)",
               "the gradient along z is 0; a rounding is left of it in PyTorch's vectors")
      .differs(kComplexZeros, kSignsOfZeros)
      .samples(unary_samples());
  define("angle(Tensor self) -> Tensor")
      .dtypes(d::any | d::wide_unsigned)
      .doc("The angle of complex numbers in (-pi, pi]; of real ones 0, or pi where negative. NaN stays.")
      .result([](const Call& c) {
        DType t = c.dtype("self");
        return std::vector<DType>{is_differentiable(t) ? real_of(t) : default_dtype()};
      })
      .no_in_place()
      .pointwise([](Expr x) {
        if (is_complex(x.dtype())) return atan2(imag(x), real(x));
        if (!is_floating(x.dtype())) {
          if (x.dtype() == DType::Bool) return constant(0.0, default_dtype());
          return select(x < 0, constant(3.14159265358979323846, default_dtype()), 0.0);
        }
        return select(isnan(x), std::nan(""), select(x < 0.0, 3.14159265358979323846, zero_like(x)));
      })
      .differs(kComplexLimit, kByParts)
      .samples(unary_samples());
  define("square(Tensor self) -> Tensor")
      .doc("self * self; of bool int64.")
      .grad_name("Pow")
      .result([](const Call& c) {
        return std::vector<DType>{c.dtype("self") == DType::Bool ? DType::Int64 : c.dtype("self")};
      })
      .pointwise([](Expr x) { return x.dtype() == DType::Bool ? cast(x, DType::Int64) : x * x; })
      .differs(kComplexInfinite, kByParts)
      .differs("b?float\\d+ gradient of self: finite for -?inf at",
               "PyTorch's 2 * self overflows before the gradient scales it")
      .samples(unary_samples());
  auto rounded = [](Expr (*f)(Expr)) { return [f](Expr x) { return is_floating(x.dtype()) ? f(x) : x; }; };
  define("floor(Tensor self) -> Tensor")
      .exact_out()
      .doc("The largest integer not above self.")
      .dtypes(d::integral | d::floating | d::wide_unsigned)
      .pointwise(std::function<Expr(Expr)>(rounded(floor)))
      .samples(unary_samples());
  define("ceil(Tensor self) -> Tensor")
      .exact_out()
      .doc("The smallest integer not below self.")
      .dtypes(d::integral | d::floating | d::wide_unsigned)
      .pointwise(std::function<Expr(Expr)>(rounded(ceil)))
      .samples(unary_samples());
  define("trunc(Tensor self) -> Tensor")
      .exact_out()
      .doc("self without its fraction.")
      .alias("fix")
      .dtypes(d::integral | d::floating | d::wide_unsigned)
      .pointwise(std::function<Expr(Expr)>(rounded(trunc)))
      .samples(unary_samples());
  define("round(Tensor self) -> Tensor")
      .exact_out()
      .doc("The nearest integer; halves go to the even one.")
      .bind(function | method | special)
      .dtypes(d::integral | d::floating | d::wide_unsigned)
      .pointwise(std::function<Expr(Expr)>(rounded(loop::round)))
      .samples(unary_samples());
  define("round.decimals(Tensor self, *, int decimals) -> Tensor")
      .grad_name("Round", 1)
      .exact_out()
      .doc(
          "The nearest number with `decimals` digits behind the point; negative ones round tens, hundreds, ...")
      .bind(function | method | special)
      .dtypes(d::floating)
      .pointwise([](const LoopCall& c, Expr x) {
        int64_t digits = c.integer("decimals").guard_int();
        double scale = std::pow(10.0, double(std::abs(digits)));
        if (digits == 0) return loop::round(x);
        return digits > 0 ? loop::round(x * scale) / scale : loop::round(x / scale) * scale;
      })
      .samples({"self[3, 4], decimals=2", "self[5], decimals=0", "self[](-900, 900), decimals=-2"});
  define("frac(Tensor self) -> Tensor")
      .exact_out()
      .doc("The fraction: self - trunc(self), with the sign of self.")
      .dtypes(d::floating)
      .pointwise([](Expr x) { return x - trunc(x); })
      .samples(unary_samples());
  define("isnan(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Is the element NaN?")
      .result(ResultType::boolean)
      .pointwise(
          [](Expr x) { return is_differentiable(x.dtype()) ? isnan(x) : constant(false, DType::Bool); })
      .samples(unary_samples());
  define("isinf(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Is the element infinite?")
      .result(ResultType::boolean)
      .pointwise(
          [](Expr x) { return is_differentiable(x.dtype()) ? isinf(x) : constant(false, DType::Bool); })
      .samples(unary_samples());
  define("isfinite(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Is the element neither infinite nor NaN?")
      .result(ResultType::boolean)
      .pointwise([](Expr x) {
        return is_differentiable(x.dtype()) ? bit_not(isnan(x) | isinf(x)) : constant(true, DType::Bool);
      })
      .samples(unary_samples());

  define("where(Tensor condition, Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .exact_out()
      .doc("self where condition, else other.")
      .promote(Promote::none)
      .no_in_place()
      .result([](const Call& c) {
        runtime_check(c.dtype("condition") == DType::Bool || c.dtype("condition") == DType::UInt8, "where")
            << "expected condition to be a boolean tensor, but got a tensor with dtype "
            << c.dtype("condition") << hint("condition != 0 is one");
        return std::vector<DType>{chosen_dtype(c)};
      })
      .check([](const Call& c) {
        if (c.dtype("condition") == DType::UInt8)
          warn_once(
              "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of PyTorch. "
              "Use a boolean condition instead.");
        // Numbers combined with 16-bit floats are rounded to them; others must fit.
        for (auto* n : {"self", "other"}) {
          auto& v = c[n];
          if (v.tag == Tag::tensor || (v.tag == Tag::scalar && std::abs(v.scalar.to_complex()) <= 127))
            continue;
          DType d = c.op().dtype_rule(c).at(0);
          if (compute_type(d) == d) must_fit(c, n);
        }
      })
      .pointwise([](const LoopCall& c, Expr cond, Expr a, Expr b) {
        DType t = compute_type(chosen_dtype(c));
        return select(truth(cond), cast(a, t), cast(b, t));
      })
      .samples({"condition?[3, 4], self[3, 4], other[4]", "condition?[5], self[5], other[5]",
                "condition?[], self[], other[]", "condition?[2, 0], self[2, 0], other[1]",
                "condition?[33, 65], self[33, 65], other[33, 1]"});
  define("lerp(Tensor self, Tensor end, Tensor|Scalar weight) -> Tensor")
      .doc("self + weight * (end - self), all of one dtype; exact where the weight is 0 or 1.")
      .grad_name([](const Call& c) { return grad_name("Lerp", is_number(c["weight"]) ? 0 : 1); })
      .dtypes(floats)
      .strict()
      .result([](const Call& c) {
        DType d = c.dtype("self");
        for (auto* name : {"end", "weight"})
          runtime_check(c.dtype(name) == d || (name[0] == 'w' && c.rank(name) == 0), "lerp")
              << "expected dtype " << d << " for `" << name << "` but got dtype " << c.dtype(name)
              << hint(name, ".to(facula.", d, ") converts");
        DType computed = computing_dtype(c.op(), c.args());
        runtime_check(computed == d, "lerp")
            << "a weight of dtype " << computed << " cannot be converted to type " << d;
        return std::vector<DType>{d};
      })
      .check(fitting_computed({"weight"}))
      .pointwise([](Expr a, Expr b, Expr w) {
        Expr near = abs(w) < 0.5;  // from whichever end is nearer
        return fma(select(near, w, w - constant(int64_t(1), w.dtype())), b - a, select(near, a, b));
      })
      .differs(kComplexInfinite, kByParts)
      .differs("complex64 value: \\(nan, nan\\) for \\((nan, -?inf|-?inf, nan)\\) at", kByParts)
      .samples(
          {"self[3, 4], end[4], weight[3, 1]", "self[], end[], weight[]", "self[5], end[5], weight=0.3"});
  define("_fused_multiply_add(Tensor self, Tensor other, Tensor addend) -> Tensor")
      .doc("self * other + addend, rounded once.")
      .bind(hidden)
      .dtypes(d::floating)
      .no_in_place()
      .pointwise([](Expr a, Expr b, Expr c) { return fma(a, b, c); })
      .samples({"self[3, 4], other[4], addend[3, 1]"});
  define("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor")
      .doc("self + value * tensor1 * tensor2.")
      .dtypes(d::numeric | d::half_complex)
      .check(fitting_computed({"value"}))
      .pointwise([](Expr a, Expr b, Expr c, Expr v) { return fma(v * b, c, a); })
      .differs(catalog::kComplexInfinite, catalog::kByParts)
      .differs(
          "(float|complex)\\d+ gradient of tensor\\d: .* at .*(e[+-]30\\d|e[+-]38|e-32\\d|value=-?inf|value=1e)",
          "which product of three numbers comes first decides what overflows or vanishes")
      .samples({"self[3, 4], tensor1[4], tensor2[3, 1]", "self[5], tensor1[5], tensor2[5], value=2",
                "self[0], tensor1[0], tensor2[0]"});
  define("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor")
      .doc("self + value * tensor1 / tensor2.")
      .dtypes(floats)
      .check(fitting_computed({"value"}))
      .pointwise([](Expr a, Expr b, Expr c, Expr v) { return a + v * b / c; })
      // value meets the divisor first: derived, an infinite quotient meets it, which may be 0.
      .vjp([](const Vjp& v) {
        const Value& value = v.call()["value"];
        Tensor over, under;
        if (v.needs("tensor1"))
          over = invoked("_addcdiv_backward_over",
                         {catalog::wide_if_repeated(v, "tensor1"), v["tensor2"], value});
        if (v.needs("tensor2"))
          under = invoked("_addcdiv_backward_under",
                          {catalog::wide_if_repeated(v, "tensor2"), v["tensor1"], v["tensor2"], value});
        return grads(v.grad(), over, under);
      })
      .differs(
          "b?float\\d+ gradient of tensor2: (finite|-?0|-?inf|-?\\d\\S*) for (nan|-?0|-?inf|-?\\d\\S*|finite) at",
          "PyTorch's tensor2 * tensor2 overflows or vanishes; here it divides twice")
      .samples({"self[3, 4], tensor1[4], tensor2[3, 1](0.5, 2)",
                "self[5], tensor1[5], tensor2[5](0.5, 2), value=2"});
  define("_addcdiv_backward_over(Tensor grad, Tensor tensor2, Scalar value) -> Tensor")
      .doc("The gradient of addcdiv for tensor1.")
      .bind(hidden)
      .dtypes(floats)
      .no_in_place()
      .pointwise([](Expr g, Expr x, Expr v) { return g * conj(v / x); })
      .samples({"grad[3, 4], tensor2[3, 4](0.5, 2), value=2"});
  define("_addcdiv_backward_under(Tensor grad, Tensor tensor1, Tensor tensor2, Scalar value) -> Tensor")
      .doc("The gradient of addcdiv for tensor2.")
      .bind(hidden)
      .dtypes(floats)
      .no_in_place()
      .pointwise([](Expr g, Expr a, Expr b, Expr v) { return -g * conj(v * a / (b * b)); })
      .samples({"grad[3, 4], tensor1[3, 4], tensor2[3, 4](0.5, 2), value=2"});

  // Conversions and copies.
  define("to_dtype(Tensor self, dtype dtype) -> Tensor")
      .dtypes(d::stored)
      .doc("self converted to `dtype`.")
      .check([](const Call& c) {
        if (is_complex(c.dtype("self")) && !is_complex(c["dtype"].dtype) && c["dtype"].dtype != DType::Bool)
          warn_once("Casting complex values to real discards the imaginary part");
      })
      .grad_name("ToCopy")
      .bind(hidden)
      .called("to")
      .promote(Promote::none)
      .no_in_place()
      .result([](const Call& c) { return std::vector<DType>{c["dtype"].dtype}; })
      .pointwise([](const LoopCall& c, Expr x) { return converted(x, c["dtype"].dtype); })
      .samples({"self[3, 4], dtype=int32", "self[5], dtype=float64", "self[], dtype=float16",
                "self[0], dtype=complex64"});
  define("_unrounded(Tensor self, dtype dtype) -> Tensor")
      .dtypes(d::floating)
      .doc("self in `dtype`, float32 or a shorter one, but within a program as it was computed.")
      .bind(hidden)
      .promote(Promote::none)
      .no_in_place()
      .result([](const Call& c) { return std::vector<DType>{c["dtype"].dtype}; })
      .pointwise([](Expr x) { return x; })
      // Unrounded too.
      .vjp([](const Vjp& v) { return grads(invoked("_unrounded", {v.grad(), v.call().dtype("self")})); })
      .undifferenced("its result has the dtype that is given")
      .samples({"self[3, 4], dtype=float32", "self[5], dtype=float32"});
  define("copy(Tensor self, Tensor|Scalar src) -> Tensor")
      .dtypes(d::stored)
      .also("src", "other")
      .doc("The elements of src, broadcast to self's shape and converted to its dtype.")
      .moves()
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.tensor("self").dtype()}; })
      .pointwise([](const LoopCall& c, Expr, Expr b) { return converted(b, c.dtype("self")); })
      .samples({"self[3, 4], src[4]", "self[], src[]", "self[2, 0], src[1, 1]"});
  define("_with_history(Tensor self, Tensor value) -> Tensor")
      .dtypes(d::stored)
      .doc("The numbers of value, with the gradient of self: what a write leaves that is not recorded.")
      .bind(hidden)
      .no_in_place()
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.tensor("value").dtype()}; })
      .pointwise([](Expr, Expr b) { return b; })
      // The gradient is defined to pass unchanged to self.
      .vjp([](const Vjp& v) { return grads(v.grad(), Tensor()); })
      .undifferenced("it is that of other numbers")
      .samples({"self[3, 4], value[3, 4]"});
  define("fill(Tensor self, Tensor|Scalar value) -> Tensor")
      .grad_name([](const Call& c) { return grad_name("Fill", is_number(c["value"]) ? 0 : 1); })
      .dtypes(d::stored)
      .doc("A tensor like self with every element set to value.")
      .overlap(Overlap::uniform)
      .check(fitting({"value"}))
      .promote(Promote::none)
      .result([](const Call& c) {
        runtime_check(c["value"].tag != Tag::tensor || c.rank("value") == 0, "fill")
            << "only supports a 0-dimensional value tensor, but got tensor with " << c.rank("value")
            << " dimension(s)" << hint("copy_() takes a tensor of any shape");
        return std::vector<DType>{c.tensor("self").dtype()};
      })
      .pointwise([](Expr a, Expr v) { return cast(v, a.dtype()); })
      .samples({"self[3, 4], value=2", "self[3, 4], value[]"});
  define("zero(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("A tensor like self full of zeros.")
      .overlap(Overlap::uniform)
      .pointwise([](Expr a) { return zero_like(a); })
      .samples({"self[]", "self[5]", "self[2, 3, 4]", "self[2, 0, 3]"});
  define("masked_fill(Tensor self, Tensor mask, Tensor|Scalar value) -> Tensor")
      .grad_name([](const Call& c) { return grad_name("MaskedFill", is_number(c["value"]) ? 0 : 1); })
      .dtypes(d::stored)
      .overlap(Overlap::overwrites)
      .doc("value where mask, else self.")
      .check(fitting({"value"}))
      .promote(Promote::none)
      .result([](const Call& c) {
        bool tensor = c["value"].tag == Tag::tensor;
        runtime_check(!tensor || c.rank("value") == 0, "masked_fill")
            << "only supports a 0-dimensional value tensor, but got tensor with " << c.rank("value")
            << " dimension(s)";
        runtime_check(is_complex(c.dtype("self")) || !is_complex(operand_dtype(c["value"])), "masked_fill")
            << "value of dtype " << operand_dtype(c["value"]) << " cannot be converted to type "
            << c.dtype("self") << " without overflow";
        runtime_check(c.dtype("mask") == DType::Bool, "masked_fill")
            << "only supports boolean masks, but got mask with dtype " << c.dtype("mask")
            << hint("mask != 0 is one");
        return std::vector<DType>{c.tensor("self").dtype()};
      })
      .pointwise([](Expr a, Expr m, Expr v) { return select(truth(m), cast(v, a.dtype()), a); })
      .samples({"self[3, 4], mask?[4], value=1.5", "self[3, 4], mask?[3, 4], value[]",
                "self[0], mask?[0], value=1"});

  define("_real(Tensor self) -> Tensor")
      .doc("The real part.")
      .bind(hidden)
      .dtypes(d::complex)
      .result(ResultType::real)
      .no_in_place()
      .pointwise([](Expr x) { return real(x); })
      .samples(unary_samples());
  define("_imag(Tensor self) -> Tensor")
      .doc("The imaginary part.")
      .bind(hidden)
      .dtypes(d::complex)
      .result(ResultType::real)
      .no_in_place()
      .pointwise([](Expr x) { return imag(x); })
      .samples(unary_samples());
  define("_conj_physical(Tensor self) -> Tensor")
      .doc("The conjugates of complex numbers, computed.")
      .bind(hidden)
      .dtypes(d::complex | d::half_complex)
      .no_in_place()
      .pointwise([](Expr x) { return conj(x); })
      .samples(unary_samples());
}
