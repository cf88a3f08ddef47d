#include "facula/loop/simplify.h"

#include <bit>
#include <cmath>
#include <optional>

#include "facula/loop/number.h"

namespace facula::loop {
namespace {

constexpr size_t kMaxTerms = 12;
constexpr int kMaxVisited = 64;

bool is_ring(DType d) { return is_integral(d); }
bool is_int(Expr x, int64_t v) {
  return is_constant(x) && category(x.dtype()) <= Category::integral && x->value.to_int() == v;
}
bool is_commutative(Fn f) {
  return f == Fn::add || f == Fn::mul || f == Fn::max || f == Fn::min || f == Fn::eq || f == Fn::ne ||
         f == Fn::bit_and || f == Fn::bit_or || f == Fn::bit_xor;
}

// True for functions whose result does not depend on a target's approximation.
bool is_exact(Fn f, DType d) {
  if (is_complex(d))
    return f == Fn::neg || f == Fn::add || f == Fn::sub || f == Fn::conj || f == Fn::real || f == Fn::imag ||
           f == Fn::eq || f == Fn::ne;
  return ulp(f) == 0;
}

std::optional<Number> constant_of(Expr x) {
  if (!is_constant(x)) return std::nullopt;
  return number_of(x->value, x.dtype());
}

Expr fold(Fn f, std::span<const Expr> args) {
  DType d = args[0].dtype();
  if (!is_exact(f, d)) return {};
  std::vector<Number> x;
  for (auto& a : args) {
    auto c = constant_of(a);
    if (!c) return {};
    x.push_back(*c);
  }
  DType r = call_type(f, args);
  return constant(scalar_of(evaluate(f, d, x), r), r);
}

// True if every term is a loop variable, size, parameter or local. Such arithmetic does not overflow.
bool is_index_like(const Linear& l) {
  for (auto& t : l.terms)
    if (t.x->kind != Kind::index && t.x->kind != Kind::size && t.x->kind != Kind::param &&
        t.x->kind != Kind::local && t.x->kind != Kind::position)
      return false;
  return true;
}

Expr integer_sum(Fn f, const std::vector<Expr>& args) {
  Linear l;
  bool fits = linear(args[0], l) && linear(args[1], l, f == Fn::sub ? -1 : 1);
  return fits ? from_linear(l, args[0].dtype()) : Expr();
}

Expr integer_product(Expr x, Expr c) {
  Linear l;
  return linear(x, l, c->value.to_int()) ? from_linear(l, x.dtype()) : Expr();
}

// Simplifies floordiv and remainder of an index expression by a positive constant: multiples of the divisor are moved
// out.
Expr quotient(Fn f, Expr x, int64_t c) {
  DType d = x.dtype();
  if (c == 1) return f == Fn::floordiv ? x : constant(int64_t(0), d);
  if (d != DType::Int64) return {};
  if (f == Fn::floordiv && is_call(x, Fn::floordiv) && is_constant(x->args[1])) {
    int64_t inner = x->args[1]->value.to_int();
    if (inner > 0 && inner < (int64_t(1) << 62) / c) return floordiv(x->args[0], inner * c);
  }
  if (f == Fn::remainder && is_call(x, Fn::remainder) && is_constant(x->args[1])) {
    int64_t inner = x->args[1]->value.to_int();
    if (inner == c) return x;
    if (inner > 0 && inner % c == 0) return remainder(x->args[0], c);
  }
  Linear l, multiple, rest;
  if (!linear(x, l) || !is_index_like(l)) return {};
  for (auto& t : l.terms) (t.coefficient % c == 0 ? multiple : rest).terms.push_back(t);
  (l.constant % c == 0 ? multiple : rest).constant = l.constant;
  if (multiple.terms.empty() && multiple.constant == 0) return {};
  for (auto& t : multiple.terms) t.coefficient /= c;
  multiple.constant /= c;
  Expr r = call(f, {from_linear(rest, d), constant(c, d)});
  return f == Fn::floordiv ? from_linear(multiple, d) + r : r;
}

Expr unary(Fn f, Expr x) {
  DType d = x.dtype();
  bool real_type = !is_complex(d), integral = category(d) <= Category::integral;
  switch (f) {
    case Fn::neg:
      if (is_ring(d)) {
        if (Expr r = integer_product(x, constant(int64_t(-1), d))) return r;
      }
      if (is_call(x, Fn::neg)) return x->args[0];
      break;
    case Fn::abs:
      if (!is_signed(d)) return x;
      if (real_type && is_call(x, Fn::abs)) return x;
      if (real_type && is_call(x, Fn::neg)) return abs(x->args[0]);
      break;
    case Fn::sign:
      if (d == DType::Bool) return x;
      break;
    case Fn::relu:
      if (!is_signed(d) || is_call(x, Fn::relu)) return x;
      break;
    case Fn::floor:
    case Fn::ceil:
    case Fn::trunc:
    case Fn::round:
      if (integral || is_call(x, Fn::floor) || is_call(x, Fn::ceil) || is_call(x, Fn::trunc) ||
          is_call(x, Fn::round))
        return x;
      break;
    case Fn::isnan:
    case Fn::isinf:
      if (integral) return constant(false, DType::Bool);
      break;
    case Fn::bit_not:
      if (is_call(x, Fn::bit_not)) return x->args[0];
      if (is_call(x, Fn::eq)) return raw_call(Fn::ne, x->args);
      if (is_call(x, Fn::ne)) return raw_call(Fn::eq, x->args);
      break;
    case Fn::conj:
      if (real_type) return x;
      if (is_call(x, Fn::conj)) return x->args[0];
      break;
    case Fn::real:
    case Fn::imag:
      if (real_type) return f == Fn::real ? x : constant(int64_t(0), d);
      if (x->kind == Kind::load && x->part == 0)
        return load(x->slot, x->memory, x->args, f == Fn::real ? 1 : 2);
      if (is_call(x, Fn::conj)) return f == Fn::real ? real(x->args[0]) : -imag(x->args[0]);
      if (x->kind == Kind::cast && !is_complex(x->args[0].dtype()))
        return f == Fn::real ? cast(x->args[0], real_of(d)) : constant(int64_t(0), real_of(d));
      break;
    default: break;
  }
  return {};
}

// Simplifies minimum, maximum and bitwise logic of integers and bools.
Expr integer_lattice(Fn f, Expr x, Expr y) {
  bool is_bool = x.dtype() == DType::Bool;
  if (f == Fn::bit_xor) {
    if (same(x, y)) return constant(int64_t(0), x.dtype());
    if (is_int(y, 0)) return x;
    return is_bool && is_int(y, 1) ? bit_not(x) : Expr();
  }
  if (same(x, y)) return x;
  if (f == Fn::bit_and && is_int(y, is_bool ? 1 : -1)) return x;
  if (f == Fn::bit_and && is_int(y, 0)) return y;
  if (f == Fn::bit_or && is_int(y, 0)) return x;
  if (f == Fn::bit_or && is_bool && is_int(y, 1)) return y;
  return {};
}

Expr integer_comparison(Fn f, Expr x, Expr y) {
  if (same(x, y)) return constant(f == Fn::eq || f == Fn::le || f == Fn::ge, DType::Bool);
  if (x.dtype() == DType::Bool && (f == Fn::eq || f == Fn::ne) && is_constant(y))
    return is_int(y, f == Fn::eq) ? x : bit_not(x);
  return {};
}

Expr integer_binary(Fn f, const std::vector<Expr>& args) {
  Expr x = args[0], y = args[1];
  DType d = x.dtype();
  bool is_bool = d == DType::Bool;
  switch (f) {
    case Fn::add: return is_bool ? x | y : integer_sum(f, args);
    case Fn::sub: return integer_sum(f, args);
    case Fn::mul:
      if (is_bool) return x & y;
      if (is_constant(y)) return integer_product(x, y);
      break;
    case Fn::floordiv:
    case Fn::remainder:
      if (is_constant(y) && y->value.to_int() > 0) return quotient(f, x, y->value.to_int());
      break;
    case Fn::truncdiv:
      if (is_int(y, 1)) return x;
      break;
    case Fn::fmod:
      if (is_int(y, 1)) return constant(int64_t(0), d);
      break;
    case Fn::pow:
      if (is_int(y, 1)) return x;
      if (is_int(y, 2)) return x * x;
      if (is_int(y, 0)) return constant(int64_t(1), d);
      break;
    case Fn::max:
    case Fn::min:
    case Fn::fmax:
    case Fn::fmin:
    case Fn::bit_and:
    case Fn::bit_or:
    case Fn::bit_xor: return integer_lattice(f, x, y);
    case Fn::shl:
    case Fn::shr:
      if (is_int(y, 0)) return x;
      break;
    case Fn::eq:
    case Fn::le:
    case Fn::ge:
    case Fn::ne:
    case Fn::lt:
    case Fn::gt: return integer_comparison(f, x, y);
    default: break;
  }
  return {};
}

Expr floating_binary(Fn f, const std::vector<Expr>& args) {
  Expr x = args[0], y = args[1];
  bool real_type = !is_complex(x.dtype());
  switch (f) {
    case Fn::add:
      if (is_value(y, -0.0)) return x;
      break;
    case Fn::sub:
      if (is_value(y, 0.0) && real_type) return x;
      break;
    case Fn::mul:
      if (is_value(y, 1) && real_type) return x;
      if (is_value(y, -1) && real_type) return -x;
      break;
    case Fn::div:
      if (is_value(y, 1) && real_type) return x;
      break;
    case Fn::pow:
      if (is_value(y, 1) && real_type) return x;
      if (is_value(y, 2) && real_type) return x * x;
      if (is_value(y, -1) && real_type) return reciprocal(x);
      break;
    case Fn::max:
    case Fn::min:
    case Fn::fmax:
    case Fn::fmin:
      if (same(x, y)) return x;
      break;
    default: break;
  }
  return {};
}

// True if a conversion from `a` to `b` is exact.
bool is_widening(DType a, DType b) {
  if (a == b) return true;
  if (a == DType::Bool) return true;
  if (b == DType::Bool) return false;
  if (is_integral(a) && is_integral(b)) return itemsize(b) > itemsize(a) && (is_signed(b) || !is_signed(a));
  if (is_integral(a)) return itemsize(a) <= (real_of(b) == DType::Float64 ? 4 : 2);
  if (is_floating(a))
    return is_floating(b) ? itemsize(b) > itemsize(a) : is_complex(b) && itemsize(real_of(b)) >= itemsize(a);
  return is_complex(b) && itemsize(b) > itemsize(a);
}

}  // namespace

bool is_value(Expr x, double v) {
  if (!is_constant(x) || category(x.dtype()) <= Category::integral) return false;
  auto z = x->value.to_complex();
  return std::bit_cast<uint64_t>(z.real()) == std::bit_cast<uint64_t>(v) &&
         (!is_complex(x.dtype()) ||
          std::bit_cast<uint64_t>(z.imag()) == std::bit_cast<uint64_t>(std::copysign(0.0, v)));
}

bool linear(Expr x, Linear& to, int64_t scale) {
  if (++to.visited > kMaxVisited) return false;
  if (is_constant(x)) {
    to.constant = int64_t(uint64_t(to.constant) + uint64_t(scale) * uint64_t(x->value.to_int()));
    return true;
  }
  if (is_call(x, Fn::add) || is_call(x, Fn::sub))
    return linear(x->args[0], to, scale) &&
           linear(x->args[1], to, x->fn == Fn::sub ? int64_t(-uint64_t(scale)) : scale);
  if (is_call(x, Fn::neg)) return linear(x->args[0], to, int64_t(-uint64_t(scale)));
  if (is_call(x, Fn::mul) && is_constant(x->args[1]))
    return linear(x->args[0], to, int64_t(uint64_t(scale) * uint64_t(x->args[1]->value.to_int())));
  for (auto& t : to.terms) {
    if (!same(t.x, x)) continue;
    t.coefficient = int64_t(uint64_t(t.coefficient) + uint64_t(scale));
    return true;
  }
  to.terms.push_back({x, scale});
  return to.terms.size() <= kMaxTerms;
}

Expr from_linear(const Linear& l, DType d) {
  Expr sum;
  auto add = [&](Expr t) { sum = sum ? raw_call(Fn::add, {sum, t}) : t; };
  for (auto& t : l.terms) {
    int64_t c = wrap(t.coefficient, d);
    if (c == 0) continue;
    if (c == 1) add(t.x);
    else if (c == wrap(-1, d)) sum = sum ? raw_call(Fn::sub, {sum, t.x}) : raw_call(Fn::neg, {t.x});
    else add(raw_call(Fn::mul, {t.x, constant(c, d)}));
  }
  int64_t c = wrap(l.constant, d);
  if (c != 0 || !sum.get()) add(constant(c, d));
  return sum;
}

Expr simplify_call(Fn f, std::vector<Expr> args) {
  if (Expr r = fold(f, args)) return r;
  if (args.size() == 1) {
    if (Expr r = unary(f, args[0])) return r;
  } else if (args.size() == 2) {
    if (is_commutative(f) && is_constant(args[0]) && !is_constant(args[1])) std::swap(args[0], args[1]);
    bool integral = category(args[0].dtype()) <= Category::integral;
    if (Expr r = integral ? integer_binary(f, args) : floating_binary(f, args)) return r;
  } else if (f == Fn::fma && category(args[0].dtype()) <= Category::integral) {
    return args[0] * args[1] + args[2];
  } else if (f == Fn::fma && !is_complex(args[0].dtype())) {
    for (int k : {0, 1}) {
      if (is_value(args[size_t(k)], 1)) return args[size_t(1 - k)] + args[2];
      if (is_value(args[size_t(k)], -1)) return args[2] - args[size_t(1 - k)];
    }
  }
  return raw_call(f, std::move(args));
}

Expr simplify_cast(Expr x, DType to) {
  DType from = x.dtype();
  if (from == to) return x;
  if (is_constant(x)) return constant(scalar_of(convert(number_of(x->value, from), from, to), to), to);
  if (x->kind == Kind::cast && x->memory == x->dtype) {
    DType before = x->args[0].dtype();
    if (is_widening(before, from) && (before == to || is_widening(from, to) ||
                                      (is_integral(from) && is_integral(to)) || to == DType::Bool))
      return cast(x->args[0], to);
    if (is_integral(before) && is_integral(from) && is_integral(to) && itemsize(to) <= itemsize(from))
      return cast(x->args[0], to);
  }
  Node n;
  n.kind = Kind::cast;
  n.dtype = n.memory = to;
  n.args = {x};
  return intern(std::move(n));
}

Expr simplify_select(Expr c, Expr a, Expr b) {
  if (is_constant(c)) return c->value.to_bool() ? a : b;
  if (same(a, b)) return a;
  if (is_call(c, Fn::bit_not)) return select(c->args[0], b, a);
  if (a.dtype() == DType::Bool) {
    if (is_int(a, 1) && is_int(b, 0)) return c;
    if (is_int(a, 0) && is_int(b, 1)) return bit_not(c);
  }
  Node n;
  n.kind = Kind::select;
  n.dtype = n.memory = a.dtype();
  n.args = {c, a, b};
  return intern(std::move(n));
}

}  // namespace facula::loop
