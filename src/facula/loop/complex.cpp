#include "facula/loop/complex.h"

#include <cmath>
#include <limits>
#include <unordered_map>

#include "facula/loop/simplify.h"

namespace facula::loop {
namespace {

constexpr double kPi = 3.14159265358979323846, kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402;

// A complex number as real expressions, with the arithmetic in which the rules are written.
struct Z {
  Expr re, im;
};
Expr number(double v, Expr like) { return constant(v, like.dtype()); }
Z operator+(Z a, Z b) { return {a.re + b.re, a.im + b.im}; }
Z operator-(Z a, Z b) { return {a.re - b.re, a.im - b.im}; }
Z operator-(Z a) { return {-a.re, -a.im}; }
Z operator*(Z a, Z b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
Z operator*(Z a, Expr k) { return {a.re * k, a.im * k}; }
Z operator*(Z a, double k) { return a * number(k, a.re); }
Z times_i(Z a) { return {-a.im, a.re}; }
Z over_i(Z a) { return {a.im, -a.re}; }
Z one(Z like) { return {number(1, like.re), number(0, like.re)}; }
// 1 + a and 1 - a with the sign of a zero imaginary part, which determines the side of a branch cut.
Z one_plus(Z a) { return {a.re + 1.0, a.im}; }
Z one_minus(Z a) { return {1.0 - a.re, -a.im}; }
Z choose(Expr c, Z a, Z b) { return {select(c, a.re, b.re), select(c, a.im, b.im)}; }

// sqrt(x^2 + y^2) without intermediate overflow or underflow.
Expr hypot(Expr x, Expr y) {
  Expr a = abs(x), b = abs(y), big = max(a, b), small = min(a, b);
  Expr ratio = small / select(eq(big, 0), 1.0, big);
  Expr r = big * sqrt(ratio * ratio + 1.0);
  return select(isinf(a) | isinf(b), number(std::numeric_limits<double>::infinity(), x), r);
}
Expr modulus(Z z) { return hypot(z.re, z.im); }

// Smith's division with the reciprocal of the scaled divisor, as in PyTorch (and NumPy).
Z divide(Z a, Z b) {
  Expr wide = abs(b.re) >= abs(b.im);
  Expr big = select(wide, b.re, b.im), small = select(wide, b.im, b.re);
  Expr ratio = small / big, weight = reciprocal(big + small * ratio);
  Z r = choose(wide, {(a.re + a.im * ratio) * weight, (a.im - a.re * ratio) * weight},
               {(a.re * ratio + a.im) * weight, (a.im * ratio - a.re) * weight});
  return choose(wide & eq(b.re, 0), {a.re / abs(b.re), a.im / abs(b.im)}, r);
}
// Division by a real number: both parts are divided, which rounds once.
Z divide(Z a, Expr b) {
  Expr ratio = number(0, b) / b, zero = eq(b, 0);
  Z r = {(a.re + a.im * ratio) / b, (a.im - a.re * ratio) / b};
  return choose(zero, {a.re / abs(b), a.im / abs(b)}, r);
}
Z inverse(Z a) { return divide(one(a), a); }

constexpr double kInf = std::numeric_limits<double>::infinity();
Expr endless(Z a) { return isinf(a.re) | isinf(a.im); }
// a * s, but 0 if either one is 0, whatever the other: the signed zeros that annex G of C99 requires for products
// with infinity and NaN.
Expr times(Expr a, Expr s) {
  return select(eq(a, 0), a * copysign(number(1, a), s),
                select(eq(s, 0), s * copysign(number(1, a), a), a * s));
}
// a * s, where a is a modulus (or a part of it) and s belongs to an angle; infinite of unspecified sign if x is
// infinite and the angle is undefined.
Expr times_angle(Expr x, Expr a, Expr s) { return select(isinf(x) & isnan(s), a, a * s); }

// The exponential from its modulus r and the cosine and sine of its angle. Infinite and zero moduli keep signs, as
// C's cexp specifies.
Z exp_of(Z a, Expr r, Expr cosine, Expr sine) {
  Expr far = isinf(a.re), defined = bit_not(isnan(cosine));
  Expr c = select(far, select(defined, copysign(r, cosine), r), r * cosine);
  Expr s =
      select(far, select(defined, copysign(r, sine), select(eq(r, 0), copysign(r, a.im), sine)), r * sine);
  return {c, select(eq(a.im, 0), a.im, s)};
}
Z exp(Z a) { return exp_of(a, exp(a.re), cos(a.im), sin(a.im)); }
// log |z| through the larger part, so that nothing overflows; near |z| = 1 through log1p of the excess, which is
// exact there.
Expr log_modulus(Z a) {
  Expr x = abs(a.re), y = abs(a.im), big = max(x, y), small = min(x, y);
  Expr near = (big > 0.5) & (big < 1.5), ratio = small / select(eq(big, 0), 1.0, big);
  Expr excess = select(near, (big - 1.0) * (big + 1.0) + small * small, ratio * ratio);
  Expr r = fma(number(0.5, x), log1p(excess), select(near, number(0, x), log(big)));
  return select(isinf(x) | isinf(y), number(kInf, x), r);
}
Z log(Z a) { return {log_modulus(a), atan2(a.im, a.re)}; }
Z sqrt(Z a) {
  // Scales by powers of two, so that |z| + |re| neither overflows nor underflows.
  Expr big = max(abs(a.re), abs(a.im));
  bool is_double = a.re.dtype() == DType::Float64;
  Expr high = big > number(is_double ? 1e300 : 1e37, big),
       low = big < number(is_double ? 1e-290 : 1e-30, big);
  Expr down = select(high, number(0.0625, big),
                     select(low, number(is_double ? 0x1p120 : 0x1p60, big), number(1, big)));
  Expr up =
      select(high, number(4, big), select(low, number(is_double ? 0x1p-60 : 0x1p-30, big), number(1, big)));
  Z s = a * down;
  Expr t = sqrt((modulus(s) + abs(s.re)) * 0.5), u = select(eq(t, 0), number(0, t), abs(s.im) / (t * 2.0));
  Expr right = a.re >= 0;
  Z r = {select(right, t, u) * up, copysign(select(right, u, t) * up, a.im)};
  Z infinite = {number(kInf, big), a.im};
  Expr left_end = eq(a.re, -kInf) & bit_not(isnan(a.im)), right_end = eq(a.re, kInf) & bit_not(isnan(a.im));
  r = choose(left_end, {number(0, big), copysign(number(kInf, big), a.im)}, r);
  r = choose(right_end, {number(kInf, big), copysign(number(0, big), a.im)}, r);
  return choose(isinf(a.im), infinite, r);
}
Z sinh(Z a) {
  Expr s = sinh(a.re), c = cos(a.im);
  return {select(eq(a.re, 0) & isnan(c), a.re, times_angle(a.re, s, c)),
          select(eq(a.im, 0), a.im, cosh(a.re) * sin(a.im))};
}
Z cosh(Z a) { return {times_angle(a.re, cosh(a.re), cos(a.im)), times(sinh(a.re), sin(a.im))}; }
// (sinh 2x + i sin 2y) / (cosh 2x + cos 2y), computed through tan so that nothing overflows (Kahan, 1987).
Z tanh(Z a) {
  Expr t = tan(a.im), beta = t * t + 1.0, s = sinh(a.re), rho = sqrt(s * s + 1.0), d = beta * s * s + 1.0;
  Z r = {beta * rho * s / d, t / d};
  Expr far = abs(a.re) > number(a.re.dtype() == DType::Float64 ? 20 : 10, a.re);
  Expr e = exp(abs(a.re) * -2.0) * 4.0;
  Expr twist = select(isinf(a.im) | (isinf(a.re) & isnan(a.im)), copysign(number(0, s), a.im),
                      sin(a.im) * cos(a.im) * e);
  Z limit = {copysign(number(1, s), a.re), twist};
  r = choose(far, choose(isnan(t) & bit_not(isinf(a.re)), {t, t}, limit), r);
  return {select(eq(a.re, 0), a.re, r.re), select(eq(a.im, 0), a.im, r.im)};
}
// True if z^2 overflows or is infinite; the inverse functions are then log 2|z| and the angle.
Expr far_out(Z a) {
  double bound = a.re.dtype() == DType::Float64 ? 1e150 : 1e18;
  return (abs(a.re) > number(bound, a.re)) | (abs(a.im) > number(bound, a.im));
}
Expr log_of_twice(Z a) { return log_modulus(a) + kLn2; }
// Kahan, "Branch cuts for complex elementary functions", 1987. Infinite arguments give limits along their direction.
Z asin(Z a) {
  Z p = sqrt(one_plus(a)), m = sqrt(one_minus(a));
  Z r = {atan2(a.re, p.re * m.re - p.im * m.im), asinh(m.re * p.im - m.im * p.re)};
  r = choose(far_out(a), {atan2(a.re, abs(a.im)), copysign(log_of_twice(a), a.im)}, r);
  return {select(eq(a.re, 0), a.re, r.re), select(eq(a.re, 0), asinh(a.im), r.im)};
}
Z asinh(Z a) { return over_i(asin(times_i(a))); }
Z acos(Z a) {
  Z p = sqrt(one_plus(a)), m = sqrt(one_minus(a));
  Z r = {atan2(m.re, p.re) * 2.0, asinh(p.re * m.im - p.im * m.re)};
  r = choose(far_out(a), {atan2(abs(a.im), a.re), -copysign(log_of_twice(a), a.im)}, r);
  return {select(eq(a.re, 0), kPi / 2, r.re), r.im};
}
Z acosh(Z a) {
  Z p = sqrt(one_plus(a)), m = sqrt(Z{a.re - 1.0, a.im});
  Z r = {asinh(p.re * m.re + p.im * m.im), atan2(m.im, p.re) * 2.0};
  return choose(far_out(a), {log_of_twice(a), atan2(a.im, a.re)}, r);
}
Z atanh(Z a) {
  // The real part is odd in x; on the positive side the logarithm does not cancel.
  Expr x = a.re, y = a.im, p = abs(x), l = number(1, x) - p, far_side = number(1, x) + p, yy = y * y;
  // Close to the pole, where the square of the distance underflows, the logarithm of the distance is used.
  Expr square = l * l + yy, pole = eq(square, 0);
  Expr near = (number(kLn2, x) - log(select(pole, max(abs(l), abs(y)), number(1, x)))) * 0.5;
  Expr re = copysign(select(pole, near, log1p(p * 4.0 / square) * 0.25), x);
  Expr im = atan2(y * 2.0, l * far_side - yy) * 0.5;
  // For large z it is 1 / z and a right angle; on the imaginary axis a real function.
  Expr far = max(abs(x), abs(y)) > number(x.dtype() == DType::Float64 ? 1e150 : 1e18, x);
  Expr right = copysign(number(kPi / 2, y), y);
  Z r = choose(far, {inverse(a).re, right}, {re, im});
  r = choose(endless(a), {copysign(number(0, x), x), select(isnan(y), y, right)}, r);
  return {select(eq(x, 0), x, r.re), r.im};
}
// Small real exponents, which are the most frequent ones, become products, quotients and roots. `general` avoids
// computing the general case for them: if all elements share the exponent, generated code jumps over it. If exponents
// vary this does not pay, since every lane would compute all cases.
bool is_uniform(Expr x) {
  bool varies = false;
  visit(x, [&](Expr e) { varies |= e->kind == Kind::index || (e->kind == Kind::load && !e->args.empty()); });
  return !varies;
}
// a * b as C defines it (annex G): infinite if a factor or a partial product is infinite, even if the parts of the
// result would be NaN.
Z product(Z a, Z b) {
  Expr ac = a.re * b.re, bd = a.im * b.im, ad = a.re * b.im, bc = a.im * b.re, x = ac - bd, y = ad + bc;
  Expr of_a = endless(a), of_b = endless(b), within = isinf(ac) | isinf(bd) | isinf(ad) | isinf(bc);
  auto zero = [](Expr v) { return copysign(number(0, v), v); };
  auto boxed = [&](Expr v) { return select(isinf(v), copysign(number(1, v), v), zero(v)); };
  auto cleared = [&](Expr v) { return select(isnan(v), zero(v), v); };
  auto recovered = [&](Expr is_endless, Expr v) { return select(is_endless, boxed(v), cleared(v)); };
  Z p = {recovered(of_a, a.re), recovered(of_a, a.im)}, q = {recovered(of_b, b.re), recovered(of_b, b.im)};
  Z direction = p * q;
  return choose(isnan(x) & isnan(y) & (of_a | of_b | within), direction * kInf, {x, y});
}
Z pow(Z a, Z n) {
  if (is_value(n.im, 0)) {
    if (is_value(n.re, 1)) return a;
    if (is_value(n.re, 2)) return a * a;
    if (is_value(n.re, -1)) return inverse(a);
    if (is_value(n.re, 0.5)) return sqrt(a);
  }
  auto is = [&](double v) { return eq(n.re, number(v, n.re)) & eq(n.im, 0); };
  Expr easy = is(0) | is(1) | is(2) | is(3) | is(-1) | is(-2) | is(0.5) | is(-0.5);
  bool uniform = is_uniform(n.re) && is_uniform(n.im);
  auto general = [&](Expr x) { return uniform ? select(easy, number(0, x), x) : x; };
  // An error of the product becomes a relative error of the result, so it is computed in double precision.
  auto wide = [](Z z) { return Z{cast(z.re, DType::Float64), cast(z.im, DType::Float64)}; };
  Z b = wide(a), w = product(wide(n), Z{general(log_modulus(b)), general(atan2(b.im, b.re))}), square = a * a;
  Z r = exp_of(w, general(exp(w.re)), general(cos(w.im)), general(sin(w.im)));
  r = {cast(r.re, a.re.dtype()), cast(r.im, a.re.dtype())};
  if (!uniform) return r;
  Z root = choose(is(0.5) | is(-0.5), sqrt(a), a), power = choose(is(-2) | is(2), square, root);
  power = choose(is(3), square * a, power);
  Z over = choose(is(-1) | is(-2) | is(-0.5), inverse(power), power);
  return choose(easy, choose(is(0), one(a), over), r);
}

class Splitter {
 public:
  Z split(Expr x) {
    if (!is_complex(x.dtype())) return {real_form(x), constant(int64_t(0), x.dtype())};
    if (auto it = complex_.find(x.get()); it != complex_.end()) return it->second;
    Z z = make(x);
    return complex_[x.get()] = z;
  }

  Expr real_form(Expr x) {
    if (auto it = real_.find(x.get()); it != real_.end()) return it->second;
    Expr r = rewrite(x, [&](Expr e) { return replaced(e); });
    return real_[x.get()] = r;
  }

 private:
  // Rewrites a real node over complex operands; null for other nodes.
  Expr replaced(Expr e) {
    if (e->args.empty() || !is_complex(e->args[0].dtype())) {
      internal_check(!is_complex(e.dtype())) << "a complex expression in a real place: " << print(e);
      return {};
    }
    if (e->kind == Kind::cast) {
      Z a = split(e->args[0]);
      return e.dtype() == DType::Bool ? ne(a.re, 0) | ne(a.im, 0) : cast(a.re, e.dtype());
    }
    if (e->kind != Kind::call) return {};
    Z a = split(e->args[0]);
    switch (e->fn) {
      case Fn::real: return a.re;
      case Fn::imag: return a.im;
      case Fn::abs: return modulus(a);
      case Fn::isnan: return isnan(a.re) | isnan(a.im);
      case Fn::isinf: return isinf(a.re) | isinf(a.im);
      case Fn::eq:
      case Fn::ne: {
        Z b = split(e->args[1]);
        return e->fn == Fn::eq ? eq(a.re, b.re) & eq(a.im, b.im) : ne(a.re, b.re) | ne(a.im, b.im);
      }
      default: break;
    }
    supported_check(false, name(e->fn)) << "not implemented for " << e->args[0].dtype();
    return {};
  }

  Z make(Expr x) {
    DType part_type = real_of(x.dtype());
    switch (x->kind) {
      case Kind::constant: {
        auto v = x->value.to_complex();
        return {constant(v.real(), part_type), constant(v.imag(), part_type)};
      }
      case Kind::load: {
        std::vector<Expr> at;
        for (auto& i : x->args) at.push_back(real_form(i));
        return {load(x->slot, x->memory, at, 1), load(x->slot, x->memory, at, 2)};
      }
      case Kind::cast: {
        Z a = split(x->args[0]);
        if (x->memory != x->dtype)
          return {round_to(a.re, real_of(x->memory)), round_to(a.im, real_of(x->memory))};
        return {cast(a.re, part_type),
                is_complex(x->args[0].dtype()) ? cast(a.im, part_type) : constant(int64_t(0), part_type)};
      }
      case Kind::select: return choose(real_form(x->args[0]), split(x->args[1]), split(x->args[2]));
      case Kind::reduce:
      case Kind::scan: return fold(x);
      case Kind::call: return function(x);
      default: break;
    }
    internal_check(false) << "no real form of " << print(x);
    __builtin_unreachable();
  }

  // A sum is split into parts. A product cannot be split; it is computed in float64, because long products pass
  // through subnormal float32 numbers.
  Z fold(Expr x) {
    std::vector<BoundVar> bound = x->bound;
    for (auto& b : bound) b.extent = real_form(b.extent);
    Z a = split(x->args[0]);
    auto over = [&](Monoid m, Expr v) {
      return x->kind == Kind::reduce ? reduce(m, bound, {v}) : scan(m, x->slot, bound[0], {v});
    };
    if (x->monoid == Monoid::sum) return {over(Monoid::sum, a.re), over(Monoid::sum, a.im)};
    supported_check(x->monoid == Monoid::prod, name(x->monoid)) << "not implemented for " << x.dtype();
    std::vector<Expr> parts{cast(a.re, DType::Float64), cast(a.im, DType::Float64)};
    Expr y = x->kind == Kind::reduce ? reduce(Monoid::complex_prod, bound, parts)
                                     : scan(Monoid::complex_prod, x->slot, bound[0], parts);
    return {cast(part(y, 0), a.re.dtype()), cast(part(y, 1), a.im.dtype())};
  }

  Z function(Expr x) {
    Z a = split(x->args[0]), b = x->args.size() > 1 ? split(x->args[1]) : Z(),
      d = x->args.size() > 2 ? split(x->args[2]) : Z();
    switch (x->fn) {
      case Fn::neg: return -a;
      case Fn::conj: return {a.re, -a.im};
      case Fn::sign: {
        Expr r = modulus(a), zero = eq(r, 0), safe = select(zero, 1.0, r);
        return choose(zero, {number(0, r), number(0, r)}, {a.re / safe, a.im / safe});
      }
      case Fn::add: return a + b;
      case Fn::sub: return a - b;
      case Fn::mul:  // part by part even if a factor is real, as in PyTorch: 0 times infinity is NaN
        if (is_value(b.re, 0) && is_value(b.im, 1)) return times_i(a);
        return a * b;
      case Fn::div: return is_value(b.im, 0) ? divide(a, b.re) : divide(a, b);
      case Fn::fma: return a * b + d;
      case Fn::pow: return pow(a, b);
      case Fn::sqrt: return sqrt(a);
      case Fn::rsqrt: return inverse(sqrt(a));
      case Fn::reciprocal: return inverse(a);
      case Fn::exp: return exp(a);
      case Fn::exp2: return exp(a * kLn2);
      case Fn::expm1: {
        Expr s = sin(a.im * 0.5), e = expm1(a.re);
        return {e * cos(a.im) - s * s * 2.0, (e + 1.0) * sin(a.im)};
      }
      case Fn::log: return log(a);
      case Fn::log2: return log(a) * (1 / kLn2);
      case Fn::log10: return log(a) * (1 / kLn10);
      case Fn::log1p: {
        Expr small = abs(a.re) + abs(a.im) < 0.5;
        Expr near = log1p(a.re * (a.re + 2.0) + a.im * a.im) * 0.5;
        Expr re = select(small, near, log_modulus(a + one(a)));
        re = select(isnan(a.re), a.re, select(isnan(a.im), a.im, re));
        return {re, atan2(a.im, a.re + 1.0)};
      }
      case Fn::sinh: return sinh(a);
      case Fn::cosh: return cosh(a);
      case Fn::tanh: return tanh(a);
      case Fn::sin: return over_i(sinh(times_i(a)));
      case Fn::cos: return cosh(times_i(a));
      case Fn::tan: return over_i(tanh(times_i(a)));
      case Fn::asin: return asin(a);
      case Fn::acos: return acos(a);
      case Fn::asinh: return asinh(a);
      case Fn::acosh: return acosh(a);
      case Fn::atanh: return atanh(a);
      case Fn::atan: return over_i(atanh(times_i(a)));
      case Fn::sigmoid: return inverse(one(a) + exp(-a));
      default: break;
    }
    supported_check(false, name(x->fn)) << "not implemented for " << x.dtype();
    __builtin_unreachable();
  }

  std::unordered_map<const Node*, Z> complex_;
  std::unordered_map<const Node*, Expr> real_;
};

}  // namespace

std::pair<Expr, Expr> split_complex(Expr x) {
  Z z = Splitter().split(x);
  return {z.re, z.im};
}

Expr without_complex(Expr x) { return Splitter().real_form(x); }

}  // namespace facula::loop
