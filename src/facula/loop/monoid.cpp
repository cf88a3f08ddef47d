#include "facula/loop/monoid.h"

#include <limits>

#include "facula/loop/simplify.h"

namespace facula::loop {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The value that is not greater than any other (or not less).
Expr lowest(DType d) {
  internal_check(!is_complex(d)) << "complex numbers have no order, so no extremum";
  if (d == DType::Bool) return constant(false, d);
  if (is_floating(d)) return constant(-kInf, d);
  if (!is_signed(d)) return constant(int64_t(0), d);
  return constant(int64_t(-1) << (itemsize(d) * 8 - 1), d);
}
Expr highest(DType d) {
  internal_check(!is_complex(d)) << "complex numbers have no order, so no extremum";
  if (d == DType::Bool) return constant(true, d);
  if (is_floating(d)) return constant(kInf, d);
  if (!is_signed(d)) return constant(int64_t(-1), d);
  return constant(~(int64_t(-1) << (itemsize(d) * 8 - 1)), d);
}

// The extremum with the smaller position, so that the order of combination does not matter; the identity, whose
// position is larger than all others, loses to an equal value.
std::vector<Expr> first_extremum(Monoid m, std::span<const Expr> a, std::span<const Expr> b) {
  bool largest = m != Monoid::argmin;
  Expr better = largest ? b[0] > a[0] : b[0] < a[0], equal = eq(a[0], b[0]);
  if (is_floating(a[0].dtype())) {
    better = better | (isnan(b[0]) & bit_not(isnan(a[0])));
    Expr both = isnan(b[0]) & isnan(a[0]);
    if (m == Monoid::argmax_pool) better = better | (both & (b[1] > a[1]));
    else equal = equal | both;
  }
  Expr take = better | (equal & (b[1] < a[1]));
  return {select(take, b[0], a[0]), select(take, b[1], a[1])};
}

}  // namespace

std::vector<Expr> combine_rising(Monoid m, std::span<const Expr> a, std::span<const Expr> b) {
  bool largest = m != Monoid::argmin;
  Expr take = largest ? b[0] > a[0] : b[0] < a[0];
  if (m == Monoid::argmax_pool && is_floating(a[0].dtype())) take = take | isnan(b[0]);
  else if (is_floating(a[0].dtype()))  // also NaN after a number
    take = bit_not(largest ? b[0] <= a[0] : b[0] >= a[0]) & bit_not(isnan(a[0]));
  return {select(take, b[0], a[0]), select(take, b[1], a[1])};
}

std::vector<Expr> identity(Monoid m, DType d, DType position) {
  Expr zero = constant(int64_t(0), d);
  switch (m) {
    case Monoid::sum:
    case Monoid::any: return {zero};
    case Monoid::prod:
    case Monoid::all: return {constant(int64_t(1), d)};
    case Monoid::max: return {lowest(d)};
    case Monoid::min: return {highest(d)};
    case Monoid::argmax:
    case Monoid::argmax_pool: return {lowest(d), highest(position)};
    case Monoid::argmin: return {highest(d), highest(position)};
    case Monoid::logsumexp: return {lowest(d), zero};
    case Monoid::welford: return {zero, zero, zero};
    case Monoid::complex_prod: return {constant(int64_t(1), d), zero};
  }
  __builtin_unreachable();
}

bool adds_product(Monoid m, const Expr& element) {
  return m == Monoid::sum && element->kind == Kind::call && element->fn == Fn::fma &&
         !is_complex(element.dtype()) && is_value(element->args[2], 0);
}

bool may_regroup(Monoid m, std::span<const Expr> values) {
  const Expr& x = values[0];
  if (m != Monoid::prod || !is_floating(x.dtype()))
    return m != Monoid::welford && m != Monoid::argmax_pool && m != Monoid::complex_prod;
  if (x.dtype() != DType::Float64 || x->kind != Kind::cast || x->memory != x->dtype) return false;
  DType from = x->args[0].dtype();
  return !is_complex(from) && from != DType::Float64;
}

std::vector<Expr> combine(Monoid m, std::span<const Expr> a, std::span<const Expr> b) {
  switch (m) {
    case Monoid::sum:
      if (adds_product(m, b[0])) return {fma(b[0]->args[0], b[0]->args[1], a[0])};
      return {a[0] + b[0]};
    case Monoid::prod: return {a[0] * b[0]};
    case Monoid::max: return {max(a[0], b[0])};
    case Monoid::min: return {min(a[0], b[0])};
    case Monoid::any: return {a[0] | b[0]};
    case Monoid::all: return {a[0] & b[0]};
    case Monoid::argmax:
    case Monoid::argmin:
    case Monoid::argmax_pool: return first_extremum(m, a, b);
    case Monoid::logsumexp: {  // equal maxima need no factor, and infinite ones must not get one
      Expr factor = select(eq(a[0], b[0]), 1.0, exp(-abs(a[0] - b[0])));
      return {max(a[0], b[0]), select(a[0] >= b[0], a[1] + b[1] * factor, a[1] * factor + b[1])};
    }
    case Monoid::welford: {  // Chan, Golub, LeVeque, 1979
      Expr n = a[2] + b[2], delta = b[0] - a[0], share = b[2] / max(n, 1.0);
      return {a[0] + delta * share, a[1] + b[1] + delta * delta * a[2] * share, n};
    }
    case Monoid::complex_prod: return {a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]};
  }
  __builtin_unreachable();
}

std::vector<Expr> lift(Monoid m, std::span<const Expr> values) {
  DType d = values[0].dtype();
  switch (m) {
    case Monoid::argmax:
    case Monoid::argmin:
    case Monoid::argmax_pool:
    case Monoid::complex_prod: return {values[0], values[1]};
    case Monoid::logsumexp: return {values[0], constant(int64_t(1), d)};
    case Monoid::welford: return {values[0], constant(int64_t(0), d), constant(int64_t(1), d)};
    default: return {values[0]};
  }
}

}  // namespace facula::loop
