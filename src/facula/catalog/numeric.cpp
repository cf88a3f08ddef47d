// Pointwise functions of numbers as such: which is larger, their parts, neighbours, divisors and logarithms of sums.
#include <cmath>
#include <limits>

#include "facula/catalog/no_derivative.h"
#include "facula/catalog/repeated.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kPi = 3.14159265358979323846,
                 kLn2 = 0.69314718055994530942;

Expr like(double v, Expr x) { return constant(v, x.dtype()); }
Expr falsehood() { return constant(false, DType::Bool); }

// re + im i of any parts: neither sum changes a zero's sign.
Expr joined(Expr re, Expr im, DType t) {
  return conj(cast(re, t)) + cast(im, t) * constant(std::complex<double>(0, 1), t);
}
// f of a real number, or of both parts of a complex one.
template <class F>
Expr by_parts(Expr x, F&& f) {
  return is_complex(x.dtype()) ? joined(f(real(x)), f(imag(x)), x.dtype()) : f(x);
}

// x = mantissa 2^exponent with 0.5 <= |mantissa| < 1, of a float64 that is neither 0 nor infinite nor NaN. The
// logarithm's rounding is undone by one step.
struct Split {
  Expr mantissa, exponent;
};
Split binary_parts(Expr x) {
  Expr small = abs(x) < 0x1p-500, s = select(small, x * 0x1p600, x), e = floor(log2(abs(s))) + 1.0;
  Expr m = s * exp2(-e), high = abs(m) >= 1.0, low = abs(m) < 0.5;
  m = select(high, m * 0.5, select(low, m * 2.0, m));
  e = select(high, e + 1.0, select(low, e - 1.0, e));
  return {m, select(small, e - 600.0, e)};
}
// Properties of a floating dtype: its digits, its smallest and its largest number.
struct Format {
  int digits;
  double least, largest;
};
template <class T>
constexpr Format format_of() {
  using N = std::numeric_limits<T>;
  return {N::digits, double(N::denorm_min()), double(N::max())};
}
Format format(DType t) {
  if (t == DType::Float16) return {11, 0x1p-24, 65504};
  if (t == DType::BFloat16) return {8, 0x1p-133, 0x1.fep127};
  return t == DType::Float32 ? format_of<float>() : format_of<double>();
}
// The neighbour of x among the numbers of dtype `t`. Moved by 0.6 to 1.2 units in the last place, x rounds to it; below a
// power of 2, where units are half as large, too. Near the least number that is done with numbers 2^64 times as large, so
// that parts of a unit are numbers.
Expr next_after(Expr x, Expr y, DType t) {
  Format f = format(t);
  double digit = std::ldexp(0.6, 1 - f.digits);
  bool in_memory_only = t != x.dtype();
  Expr up = like(1, x), down = up, least = like(0.75 * f.least, x);
  if (!in_memory_only) {
    Expr small = abs(x) < std::ldexp(f.least, f.digits + 8);
    up = select(small, like(0x1p64, x), 1.0), down = select(small, like(0x1p-64, x), 1.0);
    least = select(small, like(0x1p64 * f.least * 0.75, x), 0.0);
  }
  Expr scaled = x * up, part = abs(scaled) * digit, step = select(part > least, part, least);
  Expr r = (scaled + select(x < y, step, -step)) * down;
  if (in_memory_only) r = round_to(r, t);
  r = select(isinf(x), copysign(like(f.largest, x), x), r);
  return select(eq(x, y) | isnan(y), y, select(isnan(x), x, r));
}

// log(base^a + base^b) from the larger of both.
Expr log_of_sum(Expr a, Expr b) {
  Expr endless = eq(a, b) & isinf(a), y = max(a, b) + log1p(exp(-abs(a - b)));
  return select(endless, a, y);
}
Expr log2_of_sum(Expr a, Expr b) {
  Expr endless = eq(a, b) & isinf(a), y = max(a, b) + log1p(exp2(-abs(a - b))) * (1 / kLn2);
  return select(endless, a, y);
}
// The angle of a sum of zeros is that of the smaller number; other infinite sums are taken as they are.
Expr complex_log_of_sum(Expr a, Expr b) {
  Expr below = (real(a) < real(b)) | isnan(a), low = select(below, a, b), high = select(below, b, a);
  Expr endless = eq(real(a), real(b)) & isinf(real(a));
  Expr both = select(real(low) < 0.0, low, log(exp(low) + exp(high)));
  return select(endless, both, high + log1p(exp(low - high)));
}

// sqrt(x^2 + y^2): in float64, and beyond its squares after a change of scale.
Expr hypotenuse(Expr x, Expr y) {
  DType t = x.dtype();
  Expr a = cast(abs(x), DType::Float64), b = cast(abs(y), DType::Float64), r;
  if (t == DType::Float64) {
    Expr m = max(a, b),
         scale = select(m > 0x1p500, like(0x1p-600, a), select(m < 0x1p-500, like(0x1p600, a), 1.0));
    Expr back = select(m > 0x1p500, like(0x1p600, a), select(m < 0x1p-500, like(0x1p-600, a), 1.0));
    Expr p = a * scale, q = b * scale;
    r = sqrt(fma(p, p, q * q)) * back;
  } else {
    r = cast(sqrt(fma(a, a, b * b)), t);
  }
  return select(isinf(x) | isinf(y), like(kInfinity, r), r);
}

void same_dtypes(const Call& c, const char* a, const char* b) {
  runtime_check(c.dtype(a) == c.dtype(b), c.name())
      << "expected both tensors to have the same dtype, but got " << c.dtype(a) << " for `" << a << "` and "
      << c.dtype(b) << " for `" << b << "`" << hint(b, ".to(facula.", c.dtype(a), ") converts");
}
constexpr DTypeSet kWhole = dtypes_where([](DType t) { return t == DType::Float32 || t == DType::Float64; });
constexpr DTypeSet kParts = dtypes_where([](DType t) { return is_floating(t) && t != DType::BFloat16; });

// A complex tensor of two real ones of one dtype.
Definer from_parts(const char* schema, const char* doc, const char* a, const char* b, DTypeSet parts) {
  return define(schema).doc(doc).bind(function).dtypes(parts).exact_out().result([a, b](const Call& c) {
    runtime_check(kParts.has(c.dtype(a)), c.name())
        << "expected tensors of float16, float32 or float64, but got " << c.dtype(a) << " and " << c.dtype(b);
    same_dtypes(c, a, b);
    return std::vector<DType>{complex_of(c.dtype(a))};
  });
}

// fmax, fmin: of integers as maximum.
Definer extremum(const char* schema, const char* doc, Expr (*f)(Expr, Expr)) {
  return define(schema).doc(doc).dtypes(d::real).pointwise(f).samples(binary_samples());
}
Definer sum_in_logarithms(const char* schema, const char* doc, bool base_two) {
  return define(schema)
      .doc(doc)
      .dtypes(d::floating)
      // Gives NaN where both are infinite, as PyTorch does.
      .vjp([base_two](const Vjp& v) {
        auto of = [&](const char* one, const char* other) {
          return v.needs(one) ? _share(catalog::wide_if_repeated(v, one), v[one], v[other], base_two)
                              : Tensor();
        };
        return grads(of("self", "other"), of("other", "self"));
      })
      .samples(binary_samples());
}
// A question about the sign or the value of one real number.
Definer question(const char* schema, const char* doc, Expr (*f)(Expr)) {
  return define(schema)
      .doc(doc)
      .dtypes(d::real | d::wide_unsigned)
      .result(ResultType::boolean)
      .exact_out()
      .pointwise([f](const LoopCall& c, Expr x) {
        runtime_check(!is_complex(x.dtype()), c.name())
            << "does not support complex inputs, got " << x.dtype();
        return f(x);
      })
      .samples(unary_samples());
}
Definer scaled(const char* schema, const char* doc, double factor) {
  return define(schema)
      .doc(doc)
      .dtypes(d::floating)
      .promote(Promote::int_to_float)
      .in_place()
      .pointwise([factor](Expr x) { return x * factor; })
      .samples(unary_samples());
}

}  // namespace

FACULA_FAMILY(numeric) {
  extremum("fmax(Tensor self, Tensor other) -> Tensor", "The larger of both; a number wins over NaN.",
           [](Expr a, Expr b) { return fmax(a, b); });
  extremum("fmin(Tensor self, Tensor other) -> Tensor", "The smaller of both; a number wins over NaN.",
           [](Expr a, Expr b) { return fmin(a, b); });
  define("heaviside(Tensor self, Tensor values) -> Tensor")
      .doc("0 below 0, 1 above, `values` at 0; NaN gives 0.")
      .dtypes(d::real)
      .exact_out()
      .grad_name(catalog::not_implemented())
      .vjp(catalog::NoDerivative{"aten::heaviside"})
      .result([](const Call& c) {
        same_dtypes(c, "self", "values");
        return std::vector<DType>{c.dtype("self")};
      })
      .in_place()
      .pointwise([](Expr x, Expr v) {
        return select(eq(cast(x, DType::Bool), falsehood()), v,
                      cast(x > constant(int64_t(0), x.dtype()), x.dtype()));
      })
      .samples({"self[3, 4], values[4]", "self[5], values[5]", "self[], values[]", "self[2, 0], values[1]"});
  define("hypot(Tensor self, Tensor other) -> Tensor")
      .doc("sqrt(self^2 + other^2), without overflow on the way.")
      .dtypes(d::floating)
      .in_place()
      .pointwise(hypotenuse)
      // Gives NaN where both are 0, as PyTorch does.
      .vjp([](const Vjp& v) {
        auto of = [&](const char* name) {
          return v.needs(name) ? div(mul(v.grad(), v[name]), v.result()) : Tensor();
        };
        return grads(of("self"), of("other"));
      })
      .samples(binary_samples(0.5, 2));
  define("gcd(Tensor self, Tensor other) -> Tensor")
      .doc("The greatest common divisor, by Euclid's algorithm; gcd(0, 0) is 0.")
      .dtypes(d::integral)
      .in_place()
      .pointwise([](Expr a, Expr b) { return gcd(a, b); })
      .samples(binary_samples(-20, 20));
  define("lcm(Tensor self, Tensor other) -> Tensor")
      .doc("The least common multiple, not negative; 0 where an operand is 0.")
      .dtypes(d::integral)
      .in_place()
      .pointwise([](Expr a, Expr b) {
        Expr g = gcd(a, b), zero = constant(int64_t(0), g.dtype());
        // Integers of fewer bits multiply as C's do, and lose the upper bits of the absolute product.
        DType t = g.dtype(), at = itemsize(t) < 4 ? DType::Int32 : t;
        return select(eq(g, zero), zero, cast(abs(cast(truncdiv(a, g), at) * cast(b, at)), t));
      })
      .samples(binary_samples(-20, 20));
  define("ldexp(Tensor self, Tensor other) -> Tensor")
      .doc("self * 2^other.")
      .dtypes(d::floating | d::complex)
      .promote(Promote::int_to_float)
      .in_place()
      .pointwise([](Expr x, Expr n) { return x * (is_complex(n.dtype()) ? pow(like(2, n), n) : exp2(n)); })
      .vjp([](const Vjp& v) {  // products in PyTorch's order, on which it depends what overflows
        Tensor g = catalog::wide_if_repeated(v, "self"), h = catalog::wide_if_repeated(v, "other"), of_self,
               of_other;
        if (v.needs("self"))
          of_self = mul(g, conj_physical(pow(Scalar(2.0), to_dtype(v["other"], g.dtype()))));
        if (v.needs("other")) {
          bool rounded = compute_type(v.grad().dtype()) != v.grad().dtype();  // the result, to 16 bits
          Tensor y = rounded ? ldexp(catalog::wide(v["self"]), v["other"]) : v.result();
          of_other = mul(h, conj_physical(mul(y, kLn2)));
        }
        return grads(of_self, of_other);
      })
      .samples(binary_samples());
  define("frexp(Tensor self) -> (Tensor mantissa, Tensor exponent)")
      .doc(
          "mantissa * 2^exponent with a mantissa of [0.5, 1) and an int32 exponent; 0, infinities and NaN stay.")
      .dtypes(d::floating)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int32}; })
      .pointwise([](Expr x) {
        Expr w = cast(x, DType::Float64), plain = isnan(w) | isinf(w) | eq(w, 0);
        Split s = binary_parts(select(plain, 1.0, w));
        return std::vector<Expr>{select(plain, x, cast(s.mantissa, x.dtype())),
                                 select(plain, constant(int64_t(0), DType::Int32),
                                        cast(s.exponent, DType::Int32))};
      })
      // The body takes numbers apart by their bits.
      .vjp([](const Vjp& v) { return grads(div(v.grad(), exp2(v.result(1)))); })
      .samples(unary_samples());
  define("nextafter(Tensor self, Tensor other) -> Tensor")
      .doc("The number of the dtype beside self on the way to other.")
      .dtypes(d::floating)
      .in_place()
      .pointwise([](const LoopCall& c, Expr x, Expr y) {
        return next_after(x, y, computing_dtype(c.op(), c.args()));
      })
      // The body counts in bits.
      .vjp([](const Vjp& v) {
        Tensor self = v["self"], other = v["other"];
        return grads(where(ne(self, other), v.grad(), 0.0), v.needs("other") ? zeros_like(other) : Tensor());
      })
      .samples(binary_samples());
  sum_in_logarithms("logaddexp(Tensor self, Tensor other) -> Tensor",
                    "log(exp(self) + exp(other)), without overflow.", false)
      .dtypes(d::floating | d::complex)
      .pointwise(
          [](Expr a, Expr b) { return is_complex(a.dtype()) ? complex_log_of_sum(a, b) : log_of_sum(a, b); });
  sum_in_logarithms("logaddexp2(Tensor self, Tensor other) -> Tensor",
                    "log2(2^self + 2^other), without overflow.", true)
      .pointwise(log2_of_sum);
  define("_share(Tensor grad, Tensor self, Tensor other, bool base_two) -> Tensor")
      .doc("grad times the share that exp(self), or 2^self, has in the sum of both.")
      .bind(hidden)
      .composite([](const Tensor& g, const Tensor& a, const Tensor& b, bool base_two) {
        Tensor difference = sub(b, a);
        return div(g, conj_physical(add(base_two ? exp2(difference) : exp(difference), 1)));
      })
      .samples(
          {"grad[3, 4], self[3, 4], other[4], base_two=False", "grad[3], self[3], other[3], base_two=True"});
  define("nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor")
      .dtypes(d::any | d::wide_unsigned)
      .doc(
          "NaN and infinities replaced: by 0 and the dtype's largest and lowest numbers unless told otherwise.")
      .exact_out()
      .in_place()
      .pointwise([](const LoopCall& c, Expr x) {
        if (!is_differentiable(x.dtype())) return x;
        DType t = real_of(c.dtype("self"));
        double largest = t == DType::Float16    ? 65504
                         : t == DType::BFloat16 ? 0x1.fep127
                         : t == DType::Float32  ? double(std::numeric_limits<float>::max())
                                                : std::numeric_limits<double>::max();
        auto given = [&](const char* name, double otherwise) {
          return c.has(name) ? c.real(name) : otherwise;
        };
        double nan = given("nan", 0), high = given("posinf", largest), low = given("neginf", -largest);
        return by_parts(x, [&](Expr v) {
          return select(isnan(v), like(nan, v),
                        select(isinf(v), select(v > 0.0, like(high, v), like(low, v)), v));
        });
      })
      .samples({"self[3, 4]", "self[5], nan=1.0", "self[], nan=0.5, posinf=2.0, neginf=-3.0", "self[2, 0]"});
  question("signbit(Tensor self) -> Tensor", "Is the sign bit set, as of -0 too?", [](Expr x) {
    if (x.dtype() == DType::Bool) return falsehood();
    return is_floating(x.dtype()) ? copysign(like(1, x), x) < 0.0 : x < constant(int64_t(0), x.dtype());
  });
  question("isposinf(Tensor self) -> Tensor", "Is the element +infinity?",
           [](Expr x) { return is_floating(x.dtype()) ? eq(x, like(kInfinity, x)) : falsehood(); });
  question("isneginf(Tensor self) -> Tensor", "Is the element -infinity?",
           [](Expr x) { return is_floating(x.dtype()) ? eq(x, like(-kInfinity, x)) : falsehood(); });
  define("isreal(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Is the imaginary part 0, as of all real numbers?")
      .result(ResultType::boolean)
      .pointwise([](Expr x) { return is_complex(x.dtype()) ? eq(imag(x), 0) : constant(true, DType::Bool); })
      .samples(unary_samples());
  scaled("deg2rad(Tensor self) -> Tensor", "Degrees as radians: self * pi / 180.", kPi / 180)
      .grad_name("Deg2Rad");
  scaled("rad2deg(Tensor self) -> Tensor", "Radians as degrees: self * 180 / pi.", 180 / kPi)
      .grad_name("Rad2Deg");
  from_parts("complex(Tensor real, Tensor imag) -> Tensor", "Complex numbers of these parts.", "real", "imag",
             kParts)
      .pointwise([](Expr re, Expr im) { return joined(re, im, complex_of(re.dtype())); })
      .samples({"real[3, 4], imag[4]", "real[], imag[]", "real[2, 0], imag[1]"});
  from_parts("polar(Tensor abs, Tensor angle) -> Tensor",
             "Complex numbers of these moduli and angles in radians.", "abs", "angle", kWhole)
      .autocast(Autocast::fp32)
      .pointwise([](Expr r, Expr a) { return joined(r * cos(a), r * sin(a), complex_of(r.dtype())); })
      .vjp([](const Vjp&
                  v) {  // of the angle as PyTorch's: products of complex numbers, NaN where one is infinite
        Tensor g = v.grad(), angle = v["angle"];
        return grads(v.needs("abs") ? add(mul(real(g), cos(angle)), mul(imag(g), sin(angle))) : Tensor(),
                     v.needs("angle")
                         ? real(mul(conj_physical(g), mul(v.result(), Scalar(std::complex<double>(0, 1)))))
                         : Tensor());
      })
      .samples({"abs[3, 4](0, 2), angle[4]", "abs[](0, 2), angle[]", "abs[2, 0](0, 2), angle[1]"});
  define(
      "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor")
      .doc("|self - other| <= atol + rtol * |other|, element by element; integers are compared in float64.")
      .non_differentiable("the results are truth values")
      .check([](const Call& c) {
        double rtol = c.real("rtol"), atol = c.real("atol");
        runtime_check(rtol >= 0 && atol >= 0, "isclose")
            << "rtol and atol must be at least 0, got " << rtol << " and " << atol;
      })
      .composite([](const Tensor& self, const Tensor& other, const Tensor& rtol, const Tensor& atol,
                    bool equal_nan) {
        runtime_check(self.dtype() == other.dtype(), "isclose")
            << self.dtype() << " and " << other.dtype() << " did not match"
            << hint("other.to(input.dtype) converts");
        Tensor close = eq(self, other), a = self, b = other;
        bool exact = !is_differentiable(self.dtype());
        if (equal_nan && !exact) close = logical_or(close, logical_and(isnan(self), isnan(other)));
        if (exact) a = to_dtype(a, DType::Float64), b = to_dtype(b, DType::Float64);
        Tensor error = abs(sub(a, b)), allowed = add(abs(mul(b, rtol)), atol);
        Tensor within = logical_and(isfinite(error), le(error, allowed));
        // Integers that are equal as float64 alone are not without a tolerance.
        return logical_or(close, exact ? logical_and(within, gt(allowed, 0)) : within);
      })
      .samples({"self[3, 4], other[3, 4]", "self[3], other[2, 3], rtol=0.5, atol=0.1, equal_nan=True",
                "self<3>[4], other<3>[4], rtol=0, atol=1"});
}
