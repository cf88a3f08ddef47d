#include "facula/schedule/moments.h"

#include <cmath>
#include <limits>
#include <unordered_map>

namespace facula::schedule {

using loop::Expr;
using loop::Kind;
using loop::Monoid;

namespace {

// The sums of x - mean and of its square over the elements that r folds. The rounded mean is off by up to half a unit
// in the last place, and the sum of deviations, which would be 0 for the exact mean, measures that error. Numbers
// near the largest finite one are accumulated scaled down by a power of two. If the sum is infinite anyway, the
// largest number serves as the mean. Products are accumulated by fma, which halves the instructions of the sweeps.
struct Deviations {
  Expr total, mean, sum, squares, count;
};
Deviations deviations(Expr r) {
  Expr x = in_two_sweeps(r->args[0]), n = loop::constant(int64_t(1), DType::Int64);
  for (auto& b : r->bound) n = n * b.extent;
  n = loop::cast(n, x.dtype());
  double largest =
      x.dtype() == DType::Float64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  constexpr double kScale = 0x1p-32;
  auto sum = [&](Expr a, Expr b) {
    return loop::reduce(Monoid::sum, r->bound, {loop::fma(a, b, loop::constant(0.0, x.dtype()))});
  };
  Expr total = sum(x, loop::constant(kScale, x.dtype()));
  Expr mean = loop::select(loop::isinf(total), loop::copysign(loop::constant(largest, x.dtype()), total),
                           total / n * (1 / kScale));
  Expr d = x - mean;
  return {total, mean, loop::reduce(Monoid::sum, r->bound, {d}), sum(d, d), n};
}
// The sum of squares about the exact mean (Chan, Golub, LeVeque, 1983). An overflow stays infinite. The result is NaN
// if an element is infinite; the deviations from the largest finite number show that, since their sum is not on the
// other side of zero.
Expr about_mean(const Deviations& d) {
  Expr n = loop::cast(d.count, d.squares.dtype()), less = d.sum * d.sum / loop::max(n, 1.0);
  Expr infinite = loop::eq(d.squares, std::numeric_limits<double>::infinity());
  Expr around = loop::select(infinite, d.squares, d.squares - less);
  Expr sign = loop::copysign(loop::constant(1.0, d.sum.dtype()), d.total);
  Expr endless = loop::isinf(d.total) & loop::bit_not(d.sum * sign <= 0.0);
  return loop::select(endless, loop::constant(std::nan(""), around.dtype()), around);
}

}  // namespace

std::vector<Expr> wide_moments(Expr r) {
  Deviations d = deviations(r);
  auto wide = [](Expr x) { return loop::cast(x, DType::Float64); };
  Deviations w = {wide(d.total), wide(d.mean), wide(d.sum), wide(d.squares), wide(d.count)};
  return {w.mean + w.sum / loop::max(w.count, 1.0), about_mean(w), w.count};
}

Expr in_two_sweeps(Expr e) {
  if (!e->has_reduce) return e;
  std::unordered_map<const loop::Node*, std::vector<Expr>> moments;
  auto parts_of = [&](Expr r) -> const std::vector<Expr>& {
    auto& parts = moments[r.get()];
    if (!parts.empty()) return parts;
    std::vector<Expr> p;
    if (r->monoid == Monoid::welford) {
      Deviations d = deviations(r);
      p = {d.mean + d.sum / loop::max(d.count, 1.0), about_mean(d), d.count};
    } else {
      Expr x = in_two_sweeps(r->args[0]), m = loop::reduce(Monoid::max, r->bound, {x});
      Expr s = loop::select(loop::eq(x, m), Scalar(1.0), loop::exp(x - m));
      p = {m, loop::reduce(Monoid::sum, r->bound, {s})};
    }
    return moments[r.get()] = p;
  };
  auto is_pair = [](Expr x) {
    return x->kind == Kind::reduce && (x->monoid == Monoid::welford || x->monoid == Monoid::logsumexp);
  };
  return loop::rewrite(e, [&](Expr x) -> Expr {
    if (!x->has_reduce) return x;
    if (x->kind == Kind::part && is_pair(x->args[0])) return parts_of(x->args[0])[size_t(x->slot)];
    return is_pair(x) ? parts_of(x)[0] : Expr();
  });
}

}  // namespace facula::schedule
