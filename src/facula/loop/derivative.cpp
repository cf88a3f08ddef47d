#include "facula/loop/derivative.h"

#include <array>
#include <limits>
#include <unordered_map>

namespace facula::loop {
namespace {

// One call y = f(x, z, w) whose gradient is g. Its rule gives the gradients of the operands in order, or none if f is
// constant almost everywhere. For complex numbers g and the results are conjugated cotangents (PyTorch's convention):
// a holomorphic f has gradient g * conj(f'(x)).
struct Step {
  Expr y, x, z, w, g;
  // True if y is the expression that is differentiated, and available: rules prefer y to expressions in x.
  bool is_result;
};
using Grads = std::array<Expr, 3>;
using Rule = Grads (*)(const Step&);

Expr zero(Expr like) { return constant(int64_t(0), like.dtype()); }
Expr c(double v, Expr like) { return constant(v, like.dtype()); }
constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402,
                 kTwoOverRootPi = 1.12837916709551257390, kOneOverRootTwoPi = 0.39894228040143267794;

// z / |z|, 0 at 0.
Expr direction(Expr z) {
  Expr r = abs(z);
  Expr safe = select(eq(r, 0), constant(1.0, r.dtype()), r);
  return z / cast(safe, z.dtype());
}
Expr pow_base(Expr x, Expr n, Expr g) { return select(eq(n, 0), zero(x), g * conj(n * pow(x, n - c(1, n)))); }
Expr pow_exponent(Expr x, Expr n, Expr y, Expr g) {
  Expr rises = is_complex(n.dtype()) ? (real(n) >= 0) & eq(imag(n), 0) : n >= 0;
  return select(eq(x, 0) & rises, zero(x), g * conj(y * log(x)));
}

// For y = x / r, r = |x|: the component of the gradient that is orthogonal to the direction y.
Expr turned(Expr y, Expr r, Expr g) {
  Expr safe = select(eq(r, 0), constant(1.0, r.dtype()), r);
  return select(eq(r, 0), zero(g), (g - y * cast(real(conj(y) * g), y.dtype())) / cast(safe, y.dtype()));
}
// x / (x^2 + z^2), 0 at the origin. Dividing by the larger number first keeps squares from overflowing and from vanishing.
Expr over_square(Expr x, Expr z) {
  Expr m = max(abs(x), abs(z)), a = x / m, b = z / m;
  Expr infinite = eq(m, constant(std::numeric_limits<double>::infinity(), m.dtype()));
  return select(eq(m, 0), zero(m), select(infinite, a, a / (a * a + b * b) / m));
}

template <Fn f>
Grads rule(const Step&) = delete;
#define RULE(f, ...)                                                                                        \
  template <> Grads rule<Fn::f>([[maybe_unused]] const Step& s) {                                           \
    [[maybe_unused]] const auto& [y, x, z, w, g, is_result] = s;                                                       \
    return {__VA_ARGS__};                                                                                   \
  }

RULE(neg, -g)
RULE(abs, is_complex(x.dtype()) ? cast(g, x.dtype()) * direction(x) : g* sign(x))
RULE(sign, is_complex(x.dtype()) ? turned(y, abs(x), g) : Expr())
RULE(floor)
RULE(ceil)
RULE(trunc)
RULE(round)
RULE(sqrt, g / conj(c(2, y) * y))
RULE(rsqrt, c(-0.5, g) * g * conj(y * y * y))
RULE(reciprocal, -g* conj(y* y))
RULE(exp, g* conj(y))
RULE(exp2, g* conj(y) * c(kLn2, g))
RULE(expm1, g* conj(is_result ? y + c(1, y) : exp(x)))
RULE(log, g / conj(x))
RULE(log2, g / (conj(x) * c(kLn2, x)))
RULE(log10, g / (conj(x) * c(kLn10, x)))
RULE(log1p, g / conj(x + c(1, x)))
RULE(sin, g* conj(cos(x)))
RULE(cos, g * -conj(sin(x)))
RULE(tan, g* conj(c(1, y) + y * y))
RULE(asin, g* conj(rsqrt(c(1, x) - x * x)))
RULE(acos, g * -conj(rsqrt(c(1, x) - x * x)))
RULE(atan, g / conj(x * x + c(1, x)))
RULE(sinh, g* conj(cosh(x)))
RULE(cosh, g* conj(sinh(x)))
RULE(tanh, g* conj(c(1, y) - y * y))
RULE(asinh, g* conj(rsqrt(x* x + c(1, x))))
RULE(acosh,
     g*(is_complex(x.dtype()) ? conj(rsqrt(x + c(-1, x)) * rsqrt(x + c(1, x))) : rsqrt(x* x - c(1, x))))
RULE(atanh, g / conj(c(1, x) + c(-1, x) * (x * x)))
RULE(erf, g* c(kTwoOverRootPi, x) * exp(-(x * x)))
RULE(erfc, g* c(-kTwoOverRootPi, x) * exp(-(x * x)))
RULE(erfinv, g* exp(y* y) * c(1 / kTwoOverRootPi, y))
RULE(ndtr, g* c(kOneOverRootTwoPi, x) * exp((x * x) * c(-0.5, x)))
RULE(sigmoid, g* conj((c(1, y) - y) * y))
RULE(relu, select(y <= zero(y), zero(g), g))
RULE(isnan)
RULE(isinf)
RULE(bit_not)
RULE(real, cast(g, x.dtype()))
RULE(imag,
     is_complex(x.dtype()) ? cast(g, x.dtype()) * constant(std::complex<double>(0, 1), x.dtype()) : Expr())
RULE(conj, conj(g))
RULE(add, g, g)
RULE(sub, g, -g)
RULE(mul, g* conj(z), g* conj(x))
RULE(div, g / conj(z), -g* conj(y / z))
RULE(floordiv)
RULE(truncdiv)
RULE(remainder, g, -g* floordiv(x, z))
RULE(fmod, g, -g* truncdiv(x, z))
RULE(pow, pow_base(x, z, g), pow_exponent(x, z, y, g))
RULE(atan2, g* over_square(z, x), -g* over_square(x, z))
RULE(max, select(x < z, zero(g), select(eq(x, z), g* c(0.5, g), g)),
     select(x > z, zero(g), select(eq(x, z), g* c(0.5, g), g)))
RULE(min, select(x > z, zero(g), select(eq(x, z), g* c(0.5, g), g)),
     select(x < z, zero(g), select(eq(x, z), g* c(0.5, g), g)))
RULE(fmax, select((x >= z) | isnan(z), g, zero(g)), select((x >= z) | isnan(z), zero(g), g))
RULE(fmin, select((x <= z) | isnan(z), g, zero(g)), select((x <= z) | isnan(z), zero(g), g))
RULE(copysign, select(eq(x, 0), zero(g), g*(y / x)))
RULE(eq)
RULE(ne)
RULE(lt)
RULE(le)
RULE(gt)
RULE(ge)
RULE(bit_and)
RULE(bit_or)
RULE(bit_xor)
RULE(shl)
RULE(shr)
RULE(fma, g* conj(z), g* conj(x), g)
RULE(gcd)
RULE(bessel_j0, -g* bessel_j1(x))
RULE(bessel_j1, g*(bessel_j0(x) - select(eq(x, 0), c(0.5, x), y / x)))
RULE(bessel_y0, -g* bessel_y1(x))
RULE(bessel_y1, g*(bessel_y0(x) - y / x))
RULE(bessel_i0, g* bessel_i1(x))
RULE(bessel_i1, g* select(abs(x) > 1e-30, bessel_i0(x) - y / x, c(0.5, x)))
RULE(bessel_i0e, g*(bessel_i1e(x) - sign(x) * y))
RULE(bessel_i1e, g* select(abs(x) > 1e-30, bessel_i0e(x) - y * (sign(x) + reciprocal(x)), c(0.5, x)))
RULE(bessel_k0, -g* bessel_k1(x))
RULE(bessel_k1, -g*(bessel_k0(x) + y / x))
RULE(bessel_k0e, g*(y - bessel_k1e(x)))
RULE(bessel_k1e, g*(y - bessel_k0e(x) - y / x))
// Functions without a rule, because their operators have no gradient: Airy's function, zeta functions and orthogonal
// polynomials; and the incomplete gamma functions, whose operators have gradient rules of their own.
RULE(airy_ai)
RULE(igamma)
RULE(igammac)
RULE(hurwitz_zeta)
RULE(chebyshev_t)
RULE(chebyshev_u)
RULE(chebyshev_v)
RULE(chebyshev_w)
RULE(hermite_h)
RULE(hermite_he)
RULE(laguerre_l)
RULE(legendre_p)
#undef RULE

// A function without a RULE above fails to compile here.
constexpr Rule kRules[] = {
#define FACULA_FN(n, a, r, u) &rule<Fn::n>,
    FACULA_SCALAR_FUNCTIONS(FACULA_FN)
#undef FACULA_FN
};

// The gradient of the operand of a cast.
Expr through_cast(Expr g, DType to) {
  if (is_complex(g.dtype()) && !is_complex(to)) g = real(g);
  return cast(g, to);
}

bool is_leaf(Expr x) {
  return x->kind == Kind::load || x->kind == Kind::reduce || x->kind == Kind::scan || x->kind == Kind::part;
}

// The nodes from y to its leaves, operands first, and for each whether it depends on a differentiable leaf.
struct Reach {
  std::vector<Expr> order;
  std::unordered_map<const Node*, bool> active;
  explicit Reach(Expr y) { go(y); }
  void go(Expr root) {
    struct Frame {
      Expr x;
      size_t next;
    };
    std::vector<Frame> stack{{root, 0}};
    active[root.get()] = false;
    while (!stack.empty()) {
      Expr x = stack.back().x;
      size_t k = stack.back().next++;
      size_t n = is_leaf(x) || !is_differentiable(x.dtype()) ? 0 : x->args.size();
      if (k < n) {
        if (active.emplace(x->args[k].get(), false).second) stack.push_back({x->args[k], 0});
        continue;
      }
      bool a = is_leaf(x) && is_differentiable(x.dtype());
      for (size_t i = 0; i < n; ++i) a = a || active[x->args[i].get()];
      active[x.get()] = a;
      order.push_back(x);
      stack.pop_back();
    }
  }
};

// The conditions of the selects around a node, outermost first, each with the side on which the node is.
using Guard = std::vector<std::pair<Expr, bool>>;

Guard with(Guard guard, Expr condition, bool side) {
  guard.push_back({condition, side});
  return guard;
}

// The gradient of one node: a sum of values, where a value counts only if its guard holds. The mask is applied when
// the gradient is read, after all products; before them, 0 times an infinite derivative of the side not taken would
// give NaN.
class Gradient {
 public:
  void add(Guard guard, Expr g) {
    while (g->kind == Kind::select && (is_zero(g->args[1]) || is_zero(g->args[2]))) {
      bool side = is_zero(g->args[2]);
      guard.push_back({g->args[0], side});
      g = g->args[side ? 1 : 2];
    }
    merge(std::move(guard), g);
  }
  // Joins values for both sides of a select into one; drops conditions if there are too many guards.
  auto& terms() {
    join(terms_.size() > kMaxGuards);
    return terms_;
  }
  Expr value() {
    join(true);
    return terms_[0].value;
  }

 private:
  struct Term {
    Guard guard;
    Expr value;
  };
  static constexpr size_t kMaxGuards = 6;
  static bool is_zero(Expr x) { return x->kind == Kind::constant && x->value.to_complex() == 0.0; }
  static bool equal(const Guard& a, const Guard& b, size_t n) {
    if (a.size() != b.size()) return false;
    for (size_t k = 0; k < n; ++k)
      if (!same(a[k].first, b[k].first) || a[k].second != b[k].second) return false;
    return true;
  }
  static bool opposite(const Guard& a, const Guard& b) {
    return equal(a, b, a.size() - 1) && same(a.back().first, b.back().first);
  }
  // Removes the last condition from guards, the longest ones first: from those that have a value for either side, or
  // from all.
  void join(bool all) {
    size_t longest = 0;
    for (auto& t : terms_) longest = std::max(longest, t.guard.size());
    for (size_t n = longest; n > 0; --n) {
      for (size_t i = 0; i < terms_.size(); ++i) {
        Term t = terms_[i];
        if (t.guard.size() != n) continue;
        size_t j = i + 1;
        while (j < terms_.size() && !(terms_[j].guard.size() == n && opposite(t.guard, terms_[j].guard))) ++j;
        bool both = j < terms_.size();
        if (!both && !all) continue;
        Expr other = both ? terms_[j].value : zero(t.value);
        auto [condition, side] = t.guard.back();
        Expr v = side ? select(condition, t.value, other) : select(condition, other, t.value);
        t.guard.pop_back();
        if (both) terms_.erase(terms_.begin() + long(j));
        terms_.erase(terms_.begin() + long(i--));
        merge(std::move(t.guard), v);
      }
    }
  }
  void merge(Guard guard, Expr v) {
    for (auto& t : terms_) {
      if (!equal(t.guard, guard, guard.size())) continue;
      t.value = t.value + v;
      return;
    }
    terms_.push_back({std::move(guard), v});
  }

  std::vector<Term> terms_;
};

// Converts the gradient of a component of a complex load to that of the element.
Adjoint of_element(Expr x, Expr g) {
  if (x->kind != Kind::load || x->part == 0) return {x, g};
  Expr element = load(x->slot, x->memory, x->args), z = cast(g, element.dtype());
  return {element, x->part == 1 ? z : z * constant(std::complex<double>(0, 1), element.dtype())};
}

}  // namespace

std::vector<Adjoint> sweep(Expr y, Expr seed) {
  internal_check(seed.dtype() == y.dtype()) << "the gradient of " << y.dtype() << " is " << seed.dtype();
  Reach reach(y);
  std::unordered_map<const Node*, Gradient> gradients;
  auto add = [&](Expr to, const Guard& guard, Expr g) {
    if (g.get() && reach.active[to.get()]) gradients[to.get()].add(guard, g);
  };
  add(y, {}, seed);
  for (size_t k = reach.order.size(); k-- > 0;) {
    Expr x = reach.order[k];
    auto it = gradients.find(x.get());
    if (it == gradients.end() || is_leaf(x)) continue;
    auto& a = x->args;
    for (auto& [guard, g] : it->second.terms()) {
      if (x->kind == Kind::cast) {
        add(a[0], guard, is_differentiable(a[0].dtype()) ? through_cast(g, a[0].dtype()) : Expr());
      } else if (x->kind == Kind::select) {
        add(a[1], with(guard, a[0], true), g);
        add(a[2], with(guard, a[0], false), g);
      } else if (x->kind == Kind::call) {
        Expr z = a.size() > 1 ? a[1] : Expr(), w = a.size() > 2 ? a[2] : Expr();
        Grads d = kRules[int(x->fn)]({x, a[0], z, w, g, same(x, y)});
        for (size_t i = 0; i < a.size(); ++i) add(a[i], guard, d[i]);
      }
    }
  }
  std::vector<Adjoint> r;
  for (auto& x : reach.order)
    if (auto it = gradients.find(x.get()); is_leaf(x) && it != gradients.end())
      r.push_back(of_element(x, it->second.value()));
  return r;
}

std::vector<Adjoint> differentiate(Expr y, Expr seed) {
  internal_check(!y->has_reduce) << "differentiate: " << print(y)
                                 << " contains a reduction; transpose its definition";
  return sweep(y, seed);
}

}  // namespace facula::loop
