#include "facula/schedule/complex.h"

#include <cmath>
#include <unordered_map>

#include "facula/loop/monoid.h"

namespace facula::schedule {

using loop::Expr;
using loop::Fn;
using loop::Kind;

namespace {

struct Z { Expr re, im; };

Expr number(double v, Expr like) { return loop::constant(Scalar(v), like.dtype()); }
Expr zero(Expr like) { return number(0, like); }

Z operator+(Z a, Z b) { return {a.re + b.re, a.im + b.im}; }
Z operator-(Z a, Z b) { return {a.re - b.re, a.im - b.im}; }
Z operator-(Z a) { return {-a.re, -a.im}; }
Z operator*(Z a, Z b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
Z scaled(Z a, double k) { return {a.re * number(k, a.re), a.im * number(k, a.re)}; }
Z plus(Z a, double k) { return {a.re + number(k, a.re), a.im}; }
Z times_i(Z a) { return {-a.im, a.re}; }
Z over_i(Z a) { return {a.im, -a.re}; }
Z choose(Expr c, Z a, Z b) { return {loop::select(c, a.re, b.re), loop::select(c, a.im, b.im)}; }

// Smith's division: no overflow in the denominator.
Z operator/(Z a, Z b) {
  Expr first = loop::abs(b.re) >= loop::abs(b.im);
  Expr large = loop::select(first, b.re, b.im), small = loop::select(first, b.im, b.re);
  Expr r = small / large, d = large + small * r;
  return {loop::select(first, a.re + a.im * r, a.re * r + a.im) / d, loop::select(first, a.im - a.re * r, a.im * r - a.re) / d};
}
Expr modulus(Z a) {
  Expr x = loop::abs(a.re), y = loop::abs(a.im), m = loop::max(x, y), n = loop::min(x, y), q = n / m;
  Expr plain = m * loop::sqrt(q * q + number(1, m));
  return loop::select(loop::isinf(x) | loop::isinf(y), number(INFINITY, m), loop::select(loop::eq(m, zero(m)), m, plain));
}
Z exp(Z a) {
  Expr m = loop::exp(a.re);
  Expr real = loop::eq(a.im, zero(m));
  return {loop::select(real, m, m * loop::cos(a.im)), loop::select(real, a.im, m * loop::sin(a.im))};
}
Z log(Z a) { return {loop::log(modulus(a)), loop::atan2(a.im, a.re)}; }
Z sqrt(Z a) {
  Expr t = loop::sqrt((loop::abs(a.re) + modulus(a)) * number(0.5, a.re)), twice = t + t;
  Z right{t, a.im / twice}, left{loop::abs(a.im) / twice, loop::copysign(t, a.im)};
  return choose(loop::eq(t, zero(t)), {t, a.im}, choose(a.re >= zero(t), right, left));
}
Z sinh(Z a) { return {loop::sinh(a.re) * loop::cos(a.im), loop::cosh(a.re) * loop::sin(a.im)}; }
Z cosh(Z a) { return {loop::cosh(a.re) * loop::cos(a.im), loop::sinh(a.re) * loop::sin(a.im)}; }
Z tanh(Z a) {
  Expr x = a.re + a.re, y = a.im + a.im, d = loop::cosh(x) + loop::cos(y);
  Expr large = loop::abs(a.re) > number(20, x);
  return {loop::select(large, loop::copysign(number(1, x), a.re), loop::sinh(x) / d),
          loop::select(large, zero(x), loop::sin(y) / d)};
}
Z one_like(Z a) { return {number(1, a.re), zero(a.re)}; }
Z asinh(Z a) { return log(a + sqrt(plus(a * a, 1))); }
Z atanh(Z a) { return scaled(log(plus(a, 1)) - log(plus(-a, 1)), 0.5); }
Z asin(Z a) { return over_i(asinh(times_i(a))); }
Z pow(Z a, Z b) {
  Expr none = zero(a.re), nothing = loop::eq(a.re, none) & loop::eq(a.im, none);
  Expr no_exponent = loop::eq(b.re, none) & loop::eq(b.im, none);
  return choose(no_exponent, one_like(a), choose(nothing, {none, none}, exp(b * log(a))));
}

class Splitter {
 public:
  Expr real(Expr e) {
    if (auto it = reals_.find(e.get()); it != reals_.end()) return it->second;
    Expr r = make_real(e);
    reals_.emplace(e.get(), r);
    return r;
  }
  Z complex(Expr e) {
    if (auto it = pairs_.find(e.get()); it != pairs_.end()) return it->second;
    Z r = make_complex(e);
    pairs_.emplace(e.get(), r);
    return r;
  }

 private:
  Expr make_real(Expr e) {
    bool any = false;
    for (auto& a : e->args) any |= is_complex(a.dtype());
    if (any) {
      Z a = complex(e->args[0]);
      if (e->kind == Kind::cast) {
        if (e.dtype() == DType::Bool) return loop::ne(a.re, zero(a.re)) | loop::ne(a.im, zero(a.re));
        return loop::cast(a.re, e.dtype());
      }
      if (e->kind == Kind::call) {
        switch (e->fn) {
          case Fn::real: return a.re;
          case Fn::imag: return a.im;
          case Fn::abs: return modulus(a);
          case Fn::isnan: return loop::isnan(a.re) | loop::isnan(a.im);
          case Fn::isinf: return loop::isinf(a.re) | loop::isinf(a.im);
          case Fn::eq: { Z b = complex(e->args[1]); return loop::eq(a.re, b.re) & loop::eq(a.im, b.im); }
          case Fn::ne: { Z b = complex(e->args[1]); return loop::ne(a.re, b.re) | loop::ne(a.im, b.im); }
          default: break;
        }
        supported_check(false, loop::name(e->fn)) << "not implemented for '" << e->args[0].dtype() << "'";
      }
      supported_check(false, e->kind == Kind::reduce || e->kind == Kind::scan ? loop::name(e->monoid) : "kernel")
          << "not implemented for '" << e->args[0].dtype() << "'";
    }
    return loop::rewrite(e, [&](Expr x) { return same(x, e) ? Expr() : real(x); });
  }

  Z make_complex(Expr e) {
    DType d = real_of(e.dtype());
    switch (e->kind) {
      case Kind::constant: {
        auto v = e->value.to_complex();
        return {loop::constant(Scalar(v.real()), d), loop::constant(Scalar(v.imag()), d)};
      }
      case Kind::load: {
        std::vector<Expr> at;
        for (auto& a : e->args) at.push_back(real(a));
        return {loop::load(e->slot, e->memory, at, 1), loop::load(e->slot, e->memory, at, 2)};
      }
      case Kind::cast: {
        if (!is_complex(e->args[0].dtype())) {
          Expr x = loop::cast(real(e->args[0]), d);
          return {x, zero(x)};
        }
        Z a = complex(e->args[0]);
        return {loop::cast(a.re, d), loop::cast(a.im, d)};
      }
      case Kind::select: return choose(real(e->args[0]), complex(e->args[1]), complex(e->args[2]));
      case Kind::reduce: case Kind::scan: {
        supported_check(e->monoid == loop::Monoid::sum, loop::name(e->monoid)) << "not implemented for '" << e.dtype() << "'";
        auto bound = e->bound;
        for (auto& b : bound) b.extent = real(b.extent);
        Z a = complex(e->args[0]);
        if (e->kind == Kind::scan)
          return {loop::scan(e->monoid, e->slot, bound[0], {a.re}), loop::scan(e->monoid, e->slot, bound[0], {a.im})};
        return {loop::reduce(e->monoid, bound, {a.re}), loop::reduce(e->monoid, bound, {a.im})};
      }
      case Kind::call: return function(e);
      default: break;
    }
    supported_check(false, "kernel") << "not implemented for '" << e.dtype() << "'";
    return {};
  }

  Z function(Expr e) {
    Z a = complex(e->args[0]);
    auto b = [&] { return complex(e->args[1]); };
    switch (e->fn) {
      case Fn::neg: return -a;
      case Fn::conj: return {a.re, -a.im};
      case Fn::add: return a + b();
      case Fn::sub: return a - b();
      case Fn::mul: return a * b();
      case Fn::div: return a / b();
      case Fn::fma: return a * b() + complex(e->args[2]);
      case Fn::reciprocal: return one_like(a) / a;
      case Fn::sign: {
        Expr m = modulus(a), none = zero(m);
        return choose(loop::eq(m, none), {none, none}, {a.re / m, a.im / m});
      }
      case Fn::sqrt: return sqrt(a);
      case Fn::rsqrt: return one_like(a) / sqrt(a);
      case Fn::exp: return exp(a);
      case Fn::exp2: return exp(scaled(a, M_LN2));
      case Fn::expm1: return plus(exp(a), -1);
      case Fn::log: return log(a);
      case Fn::log2: return scaled(log(a), 1 / M_LN2);
      case Fn::log10: return scaled(log(a), 1 / M_LN10);
      case Fn::log1p: return log(plus(a, 1));
      case Fn::sin: return over_i(sinh(times_i(a)));
      case Fn::cos: return cosh(times_i(a));
      case Fn::tan: return over_i(tanh(times_i(a)));
      case Fn::sinh: return sinh(a);
      case Fn::cosh: return cosh(a);
      case Fn::tanh: return tanh(a);
      case Fn::asinh: return asinh(a);
      case Fn::acosh: return log(a + sqrt(plus(a, 1)) * sqrt(plus(a, -1)));
      case Fn::atanh: return atanh(a);
      case Fn::asin: return asin(a);
      case Fn::acos: return plus(-asin(a), M_PI_2);
      case Fn::atan: return over_i(atanh(times_i(a)));
      case Fn::sigmoid: return one_like(a) / plus(exp(-a), 1);
      case Fn::pow: return pow(a, b());
      default: break;
    }
    supported_check(false, loop::name(e->fn)) << "not implemented for '" << e.dtype() << "'";
    return {};
  }

  std::unordered_map<const loop::Node*, Expr> reals_;
  std::unordered_map<const loop::Node*, Z> pairs_;
};

}  // namespace

std::vector<Expr> components(Expr value, DType d) {
  Splitter split;
  if (!is_complex(d)) return {split.real(value)};
  if (!is_complex(value.dtype())) value = loop::cast(value, d);
  Z z = split.complex(value);
  return {z.re, z.im};
}

}  // namespace facula::schedule
