#include "facula/loop/number.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include "facula/loop/elementary.h"
#include "facula/loop/mapped.h"

namespace facula::loop {
namespace {

using Complex = std::complex<double>;

int64_t divide(Fn f, DType d, int64_t x, int64_t y) {
  bool quotient = f == Fn::truncdiv || f == Fn::floordiv || f == Fn::div;
  if (y == 0) return 0;
  if (d == DType::UInt64) return int64_t(quotient ? uint64_t(x) / uint64_t(y) : uint64_t(x) % uint64_t(y));
  if (y == -1) return quotient ? int64_t(-uint64_t(x)) : 0;
  int64_t q = x / y, r = x % y;
  if ((f == Fn::floordiv || f == Fn::remainder) && r != 0 && (r ^ y) < 0) {
    --q;
    r += y;
  }
  return quotient ? q : r;
}

int64_t power(int64_t x, int64_t n, DType d) {
  if (n < 0 && is_signed(d)) return x == 1 ? 1 : x == -1 ? (n & 1 ? -1 : 1) : 0;
  uint64_t result = 1, base = uint64_t(x);
  for (uint64_t k = uint64_t(n); k; k >>= 1, base *= base)
    if (k & 1) result *= base;
  return int64_t(result);
}

// Euclid's algorithm in the width of the dtype, where the smallest number has no absolute value.
int64_t common_divisor(int64_t x, int64_t y, DType d) {
  auto size = [&](int64_t v) { return v < 0 && is_signed(d) ? wrap(int64_t(-uint64_t(v)), d) : v; };
  for (x = size(x), y = size(y); x != 0;) y = std::exchange(x, divide(Fn::fmod, d, y, x));
  return y;
}

int width(DType d) { return itemsize(d) * 8; }

// A signed number that compares as x does.
int64_t order(int64_t x, DType d) { return d == DType::UInt64 ? x ^ std::numeric_limits<int64_t>::min() : x; }

int64_t on_integers(Fn f, DType d, int64_t x, int64_t y, int64_t z) {
  bool boolean = d == DType::Bool, negative = x < 0 && is_signed(d);
  auto less = [&](int64_t a, int64_t b) { return order(a, d) < order(b, d); };
  switch (f) {
    case Fn::neg: return int64_t(-uint64_t(x));
    case Fn::abs: return negative ? int64_t(-uint64_t(x)) : x;
    case Fn::sign: return (x != 0) - 2 * negative;
    case Fn::relu: return negative ? 0 : x;
    case Fn::floor:
    case Fn::ceil:
    case Fn::trunc:
    case Fn::round:
    case Fn::real:
    case Fn::conj: return x;
    case Fn::imag:
    case Fn::isnan:
    case Fn::isinf: return 0;
    case Fn::bit_not: return boolean ? !x : ~x;
    case Fn::add: return boolean ? x | y : int64_t(uint64_t(x) + uint64_t(y));
    case Fn::sub: return int64_t(uint64_t(x) - uint64_t(y));
    case Fn::mul: return boolean ? x & y : int64_t(uint64_t(x) * uint64_t(y));
    case Fn::floordiv:
    case Fn::truncdiv:
    case Fn::remainder:
    case Fn::fmod: return divide(f, d, x, y);
    case Fn::pow: return power(x, y, d);
    case Fn::max:
    case Fn::fmax: return less(x, y) ? y : x;
    case Fn::min:
    case Fn::fmin: return less(y, x) ? y : x;
    case Fn::eq: return x == y;
    case Fn::ne: return x != y;
    case Fn::lt: return less(x, y);
    case Fn::le: return !less(y, x);
    case Fn::gt: return less(y, x);
    case Fn::ge: return !less(x, y);
    case Fn::bit_and: return x & y;
    case Fn::bit_or: return x | y;
    case Fn::bit_xor: return x ^ y;
    case Fn::gcd: return common_divisor(x, y, d);
    case Fn::shl: return y < 0 || y >= width(d) ? 0 : int64_t(uint64_t(x) << y);
    case Fn::shr:
      if (d == DType::UInt64) return y < 0 || y >= 64 ? 0 : int64_t(uint64_t(x) >> y);
      return y < 0 || y >= width(d) ? (x < 0 ? -1 : 0) : x >> y;
    case Fn::fma: return int64_t(uint64_t(x) * uint64_t(y) + uint64_t(z));
    case Fn::dot_bytes: {
      int64_t sum = z;
      for (int k = 0; k < 32; k += 8) sum += int64_t(uint8_t(x >> k)) * int8_t(y >> k);
      return sum;
    }
    default: break;
  }
  internal_check(false) << name(f) << " of " << d;
  return 0;
}

double fmod_floor(double x, double y) {
  double m = std::fmod(x, y);
  return m != 0 && (m < 0) != (y < 0) ? m + y : m;
}

// x / y rounded down, computed from the remainder, since the quotient itself may round up to an integer.
double floor_quotient(double x, double y, DType d) {
  if (y == 0) return x / y;
  double m = std::fmod(x, y), q = rounded(rounded(x - m, d) / y, d);
  if (m != 0 && (m < 0) != (y < 0)) q = rounded(q - 1, d);
  if (q == 0) return std::copysign(0.0, rounded(x / y, d));
  double quotient = std::floor(q);
  return q - quotient > 0.5 ? quotient + 1 : quotient;
}

// Halley's method, starting from Winitzki's approximation; erfc preserves the digits of 1 - |x|.
double inverse_erf(double x) {
  using Wide = long double;
  Wide a = std::fabs(x), y;
  if (a == 0) return x;
  if (!(a < 1)) return a == 1 ? std::copysign(std::numeric_limits<double>::infinity(), x) : std::nan("");
  Wide l = std::log((1 - a) * (1 + a)), half = 2 / (std::numbers::pi_v<Wide> * 0.147L) + l / 2;
  y = std::sqrt(std::sqrt(half * half - l / 0.147L) - half);
  for (int k = 0; k < 4; ++k) {
    Wide e = a < 0.5L ? std::erf(y) - a : (1 - a) - std::erfc(y);
    e *= std::exp(y * y) / 2 * std::sqrt(std::numbers::pi_v<Wide>);
    y -= e / (1 + y * e);
  }
  return double(std::copysign(y, Wide(x)));
}

// Comparisons give 1 and 0.
double on_reals(Fn f, DType d, double x, double y, double z) {
  switch (f) {
    case Fn::neg: return -x;
    case Fn::abs: return std::fabs(x);
    case Fn::sign: return std::isnan(x) ? 0.0 : double((x > 0) - (x < 0));
    case Fn::floor: return std::floor(x);
    case Fn::ceil: return std::ceil(x);
    case Fn::trunc: return std::trunc(x);
    case Fn::round: return std::nearbyint(x);
    case Fn::sqrt: return std::sqrt(x);
    case Fn::rsqrt: return 1 / std::sqrt(x);
    case Fn::reciprocal: return 1 / x;
    case Fn::exp: return std::exp(x);
    case Fn::exp2: return std::exp2(x);
    case Fn::expm1: return std::expm1(x);
    case Fn::log: return std::log(x);
    case Fn::log2: return std::log2(x);
    case Fn::log10: return std::log10(x);
    case Fn::log1p: return std::log1p(x);
    case Fn::sin: return std::sin(x);
    case Fn::cos: return std::cos(x);
    case Fn::tan: return std::tan(x);
    case Fn::asin: return std::asin(x);
    case Fn::acos: return std::acos(x);
    case Fn::atan: return std::atan(x);
    case Fn::sinh: return std::sinh(x);
    case Fn::cosh: return std::cosh(x);
    case Fn::tanh: return std::tanh(x);
    case Fn::asinh: return std::asinh(x);
    case Fn::acosh: return std::acosh(x);
    case Fn::atanh: return std::atanh(x);
    case Fn::erf: return std::erf(x);
    case Fn::erfc: return std::erfc(x);
    case Fn::erfinv: return inverse_erf(x);
    case Fn::ndtr: return double(0.5L * std::erfc(-static_cast<long double>(x) / std::sqrt(2.0L)));
    case Fn::sigmoid: return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
    case Fn::relu: return x < 0 ? 0.0 : x;
    case Fn::isnan: return std::isnan(x);
    case Fn::isinf: return std::isinf(x);
    case Fn::real:
    case Fn::conj: return x;
    case Fn::imag: return 0;
    case Fn::add: return x + y;
    case Fn::sub: return x - y;
    case Fn::mul: return x * y;
    case Fn::div: return x / y;
    case Fn::floordiv: return floor_quotient(x, y, d);
    case Fn::truncdiv: return std::trunc(rounded(x / y, d));
    case Fn::remainder: return fmod_floor(x, y);
    case Fn::fmod: return std::fmod(x, y);
    case Fn::pow: return std::pow(x, y);
    case Fn::far_sin: return double(std::sin(static_cast<long double>(x)));
    case Fn::far_cos: return double(std::cos(static_cast<long double>(x)));
    case Fn::far_tan: return double(std::tan(static_cast<long double>(x)));
    case Fn::atan2: return std::atan2(x, y);
    case Fn::max: return std::isnan(x) ? x : std::isnan(y) ? y : x > y ? x : y;
    case Fn::min: return std::isnan(x) ? x : std::isnan(y) ? y : x < y ? x : y;
    case Fn::fmax: return std::isnan(y) ? x : x > y ? x : y;
    case Fn::fmin: return std::isnan(y) ? x : x < y ? x : y;
    case Fn::copysign: return std::copysign(x, y);
    case Fn::eq: return x == y;
    case Fn::ne: return x != y;
    case Fn::lt: return x < y;
    case Fn::le: return x <= y;
    case Fn::gt: return x > y;
    case Fn::ge: return x >= y;
    case Fn::fma:
      return d == DType::Float32 ? double(std::fmaf(float(x), float(y), float(z))) : std::fma(x, y, z);
#define FACULA_FN(n, a, r, u) case Fn::n: return mapped::n(x);
      FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
#define FACULA_FN(n, a, r, u) case Fn::n: return mapped::n(x, y);
      FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
    default: break;
  }
  internal_check(false) << name(f) << " of " << d;
  return 0;
}

Complex on_complex(Fn f, DType d, Complex x, Complex y, Complex z) {
  constexpr double ln2 = 0.69314718055994530942, ln10 = 2.30258509299404568402;
  switch (f) {
    case Fn::neg: return -x;
    case Fn::abs: return std::abs(x);
    case Fn::sign: return x == 0.0 ? Complex() : x / std::abs(x);
    case Fn::sqrt: return std::sqrt(x);
    case Fn::rsqrt: return 1.0 / std::sqrt(x);
    case Fn::reciprocal: return 1.0 / x;
    case Fn::exp: return std::exp(x);
    case Fn::exp2: return std::exp(x * ln2);
    case Fn::expm1: {
      double s = std::sin(x.imag() / 2), c = std::expm1(x.real());
      return {c * std::cos(x.imag()) - 2 * s * s, (c + 1) * std::sin(x.imag())};
    }
    case Fn::log: return std::log(x);
    case Fn::log2: return std::log(x) / ln2;
    case Fn::log10: return std::log(x) / ln10;
    case Fn::log1p: {
      double re = x.real(), im = x.imag();
      double r = std::abs(re) + std::abs(im) < 0.5 ? std::log1p(re * (2 + re) + im * im) / 2
                                                   : std::log(std::hypot(1 + re, im));
      return {r, std::atan2(im, 1 + re)};
    }
    case Fn::sin: return std::sin(x);
    case Fn::cos: return std::cos(x);
    case Fn::tan: return std::tan(x);
    case Fn::asin: return std::asin(x);
    case Fn::acos: return std::acos(x);
    case Fn::atan: return std::atan(x);
    case Fn::sinh: return std::sinh(x);
    case Fn::cosh: return std::cosh(x);
    case Fn::tanh: return std::tanh(x);
    case Fn::asinh: return std::asinh(x);
    case Fn::acosh: return std::acosh(x);
    case Fn::atanh: return std::atanh(x);
    case Fn::sigmoid: return 1.0 / (1.0 + std::exp(-x));
    case Fn::isnan: return std::isnan(x.real()) || std::isnan(x.imag());
    case Fn::isinf: return std::isinf(x.real()) || std::isinf(x.imag());
    case Fn::real: return x.real();
    case Fn::imag: return x.imag();
    case Fn::conj: return std::conj(x);
    case Fn::add: return x + y;
    case Fn::sub: return x - y;
    case Fn::mul: return x * y;
    case Fn::div: return x / y;
    case Fn::pow: return x == 0.0 && y == 0.0 ? Complex(1) : std::pow(x, y);
    case Fn::eq: return x == y;
    case Fn::ne: return x != y;
    case Fn::fma: return x * y + z;
    default: break;
  }
  internal_check(false) << name(f) << " of " << d;
  return 0;
}

// The functions of FACULA_STEPS that are not expanded into others.
std::optional<Number> primitive_step(Fn f, DType d, const Number& x, const Number& y) {
  bool wide = itemsize(d) == 8;
  switch (f) {
    case Fn::unlikely: return x;
    case Fn::bits:
      return Number::integer(wide ? std::bit_cast<int64_t>(x.z.real())
                                  : int64_t(std::bit_cast<int32_t>(float(x.z.real()))));
    case Fn::from_bits:
      return Number::real(wide ? std::bit_cast<double>(x.i) : double(std::bit_cast<float>(int32_t(x.i))));
    case Fn::entry: return Number::real(entry_of(table_row(x.i), y.i));
    default: return std::nullopt;
  }
}

int64_t saturated(double v, DType d) {
  int bits = width(d) - is_signed(d);
  double low = is_signed(d) ? -std::ldexp(1.0, bits) : 0.0, high = std::ldexp(1.0, bits);
  if (std::isnan(v)) return 0;
  v = std::trunc(v);
  if (v < low) return int64_t(low);
  if (v >= high) return int64_t(~uint64_t(0) >> (64 - bits));
  return bits == 64 ? int64_t(uint64_t(v)) : int64_t(v);
}

// Converts as x86 does: through int64 for int64 and uint8, else through int32, whose smallest number stands for
// everything out of range; then truncates to the width. uint32 and uint64 have one bit more than these; numbers that
// need it are converted without it.
int64_t truncated(double v, DType d) {
  if (d == DType::UInt32 || d == DType::UInt64) {
    double top = std::ldexp(1.0, width(d) - 1);
    uint64_t bit = v >= top ? uint64_t(1) << (width(d) - 1) : 0;
    if (bit) v -= top;
    return wrap(int64_t(uint64_t(std::fabs(v) < top ? int64_t(v) : int64_t(-top)) ^ bit), d);
  }
  bool wide = d == DType::Int64 || d == DType::UInt8;
  double limit = std::ldexp(1.0, wide ? 63 : 31);
  return wrap(std::fabs(v) < limit ? int64_t(v) : int64_t(-limit), d);
}

Number number_rounded(Complex v, DType d, bool exact) {
  return {0, exact ? v : Complex(rounded(v.real(), real_of(d)), rounded(v.imag(), real_of(d)))};
}

}  // namespace

int64_t wrap(int64_t v, DType d) {
  switch (d) {
    case DType::Bool: return v != 0;
    case DType::UInt8: return uint8_t(v);
    case DType::Int8: return int8_t(v);
    case DType::Int16: return int16_t(v);
    case DType::Int32: return int32_t(v);
    case DType::UInt16: return uint16_t(v);
    case DType::UInt32: return uint32_t(v);
    default: return v;
  }
}

// Not inlined: GCC 12 vectorises two neighbouring calls and then simplifies double(float(v)) to v.
[[gnu::noinline]] double rounded(double v, DType d) { return d == DType::Float32 ? double(float(v)) : v; }

Number number_of(const Scalar& v, DType d) {
  if (d == DType::Bool) return Number::integer(v.to_bool());
  if (is_integral(d)) {
    if (v.category() <= Category::integral) return Number::integer(wrap(v.to_int(), d));
    return Number::integer(saturated(v.to_double(), d));
  }
  if (is_complex(d)) return number_rounded(v.to_complex(), d, false);
  return Number::real(rounded(v.to_double(), d));
}

Scalar scalar_of(const Number& v, DType d) {
  switch (category(d)) {
    case Category::boolean: return Scalar(v.i != 0);
    case Category::integral: return Scalar(v.i);
    case Category::floating: return Scalar(v.z.real());
    default: return Scalar(v.z);
  }
}

Number evaluate(Fn f, DType d, std::span<const Number> x, bool exact) {
  Number none, y = x.size() > 1 ? x[1] : none, z = x.size() > 2 ? x[2] : none;
  if (auto v = primitive_step(f, d, x[0], y)) return *v;
  auto result = [&] {
#define FACULA_RESULT(n, a, r, u) if (f == Fn::n) return #r[0];
    FACULA_SCALAR_FUNCTIONS(FACULA_RESULT)
#undef FACULA_RESULT
    return 'T';
  }();
  if (category(d) <= Category::integral) {
    int64_t v = on_integers(f, d, x[0].i, y.i, z.i);
    return Number::integer(wrap(v, result == 'B' ? DType::Bool : d));
  }
  Complex v = is_complex(d) ? on_complex(f, d, x[0].z, y.z, z.z)
                            : Complex(on_reals(f, exact && d == DType::Float32 ? DType::Float64 : d,
                                               x[0].z.real(), y.z.real(), z.z.real()));
  if (result == 'B') return Number::integer(v != 0.0);
  return number_rounded(v, d, exact);
}

Number convert(const Number& x, DType from, DType to, bool exact) {
  bool from_integer = category(from) <= Category::integral;
  if (to == DType::Bool) return Number::integer(from_integer ? x.i != 0 : x.z != 0.0);
  if (is_integral(to)) return Number::integer(from_integer ? wrap(x.i, to) : truncated(x.z.real(), to));
  auto real = [&](auto i) { return to == DType::Float32 && !exact ? double(float(i)) : double(i); };
  Complex v = !from_integer ? x.z : from == DType::UInt64 ? real(uint64_t(x.i)) : real(x.i);
  if (!is_complex(to)) v = v.real();
  return number_rounded(v, to, exact);
}

Number stored(const Number& x, DType memory) {
  DType part = real_of(memory);
  auto one = [&](double v) {
    if (auto* format = float8_format(part)) return double(format->decode(format->encode(float(v))));
    return double(part == DType::Float16 ? float(Half(float(v))) : float(BFloat16(float(v))));
  };
  return {0, is_complex(memory) ? Complex(one(x.z.real()), one(x.z.imag())) : Complex(one(x.z.real()))};
}

}  // namespace facula::loop
