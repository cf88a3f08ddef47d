// Helpers of the families resample, resample_bytes and grid_sample.
#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>

#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

namespace facula::catalog::resample_helpers {

using namespace facula::loop;
using namespace facula::op;
using catalog::wide;
namespace d = facula::dtypes;

inline const SymInt kOne = int64_t(1), kZero = int64_t(0);
inline constexpr DTypeSet kBytes = dtypes_where([](DType t) { return t == DType::UInt8; });
inline Expr n_of(SymInt n) { return loop::size(n); }
inline Expr inside(Expr at, Expr n) { return (at >= Scalar(int64_t(0))) & (at < n); }
inline Expr clipped(Expr at, Expr n) { return max(min(at, n - Scalar(int64_t(1))), Scalar(int64_t(0))); }
inline Expr zero_of(DType t) { return constant(Scalar(int64_t(0)), t); }
// The cubic kernel of Keys, 1981, at distances below 1 and from 1 to 2.
inline Expr near_cubic(Expr x, double a) { return ((x * (a + 2)) - (a + 3)) * x * x + 1.0; }
inline Expr far_cubic(Expr x, double a) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; }
struct Tap {
  Expr at, weight;
};
// The four taps of the cubic kernel around floor(place).
inline std::vector<Expr> cubic_weights(Expr t) {
  constexpr double a = -0.75;
  Expr rest = 1.0 - t;
  return {far_cubic(t + 1.0, a), near_cubic(t, a), near_cubic(rest, a), far_cubic(rest + 1.0, a)};
}
// `before` become `after`; those that are known only when a program runs are looked at then, by each dimension's rule.
inline void check_positive(SymSpan input, SymSpan before, SymSpan after) {
  bool positive = true;
  for (auto n : before) positive &= sym::may_be_less(kZero, n);
  for (auto n : after) positive &= sym::may_be_less(kZero, n);
  runtime_check(positive, "interpolate") << "input and output sizes should be greater than 0, but got input "
                                         << to_string(input) << " and output size " << to_string(after);
}
inline bool keeps_equal_sizes(std::string_view mode) {
  return mode == "nearest" || mode == "linear" || mode.starts_with("smooth");
}
// How `from` elements of a dimension become `to`: by `mode`, with places computed in dtype `type`.
class Resampling {
 public:
  Resampling(const Call& c, SymInt from, SymInt to, DType type)
      : mode_(c.str("mode")),
        align_(c.flag("align_corners")),
        given_(c.real("scale")),
        from_(from),
        to_(to),
        type_(mode_.starts_with("nearest") ? DType::Float32 : type) {}
  // Whether the result is a copy of the input.
  bool is_identity() const { return keeps_equal_sizes(mode_) && sym::must_equal(from_, to_); }
  bool smooth() const { return mode_.starts_with("smooth"); }
  bool nearest() const { return mode_.starts_with("nearest"); }

  // ---- modes of few taps
  std::vector<Tap> taps(Expr o) const {
    Expr n = n_of(from_), last = n - Scalar(int64_t(1)), x = cast(o, type_), step = scale(type_);
    if (nearest()) {
      if (mode_ == "nearest" && to_ == from_ + from_) return {{shr(o, Scalar(int64_t(1))), {}}};
      return {{min(cast(floor((mode_ == "nearest" ? x : x + 0.5) * step), DType::Int64), last), {}}};
    }
    bool cubic = mode_ == "cubic";
    Expr place = align_ ? x * step : (x + 0.5) * step - 0.5;
    if (!cubic && !align_) place = max(place, 0.0);
    Expr first = min(cast(floor(place), DType::Int64), last);
    Expr t = min(max(place - cast(first, type_), 0.0), 1.0);
    if (!cubic) return {{first, 1.0 - t}, {min(first + Scalar(int64_t(1)), last), t}};
    std::vector<Tap> four;
    auto weights = cubic_weights(t);
    for (int64_t k = 0; k < 4; ++k) four.push_back({clipped(first + Scalar(k - 1), n), weights[size_t(k)]});
    return four;
  }

  // ---- smooth modes, whose kernels grow where images shrink
  // Those of the input that result o reads: from `start` to `end`.
  struct Span {
    Expr start, end;
  };
  Span span(Expr o) const {
    Expr middle = centre(o), reach = support(type_);
    return {max(cast(middle - reach + 0.5, DType::Int64), Scalar(int64_t(0))),
            min(cast(middle + reach + 0.5, DType::Int64), n_of(from_))};
  }
  Expr smooth_weight(Expr o, Expr at) const {
    Expr x = abs((cast(at, type_) - centre(o) + 0.5) / max(scale(type_), 1.0));
    if (mode_ == "smooth-linear") return max(1.0 - x, 0.0);
    if (mode_ == "smooth-cubic")
      return select(x < 1.0, near_cubic(x, -0.5), select(x < 2.0, far_cubic(x, -0.5), zero_of(type_)));
    auto sinc = [&](Expr y) { return sin(y * std::numbers::pi) / (y * std::numbers::pi); };
    Expr y = select(eq(x, 0.0), 1.0, x);
    return select(eq(x, 0.0), 1.0, select(x < 3.0, sinc(y) * sinc(y / 3.0), zero_of(type_)));
  }
  SymInt longest() const {  // no span is longer
    double wide = 2 * half_width();
    if (given_ > 0) return SymInt(int64_t(std::ceil(wide * std::max(1.0, 1 / given_))) + 2);
    return SymInt(int64_t(wide)) * (ratio(from_, to_) + kOne) + SymInt(int64_t(2));
  }

  // ---- all but nearest modes, as a table
  SymInt width() const { return smooth() ? longest() : SymInt(int64_t(mode_ == "cubic" ? 4 : 2)); }
  // The k-th element that result o reads, its weight, and the sum of the weights of that element so far: at the ends several taps
  // read the same element, and the last of them gets the whole weight.
  std::vector<Expr> entry(Expr o, Expr k) const {
    Expr none = zero_of(type_);
    if (smooth()) {
      auto [start, end] = span(o);
      Expr at = start + k, weight = select(at < end, smooth_weight(o, at), none);
      return {clipped(at, n_of(from_)), weight, weight};
    }
    auto all = taps(o);
    auto chosen = [&](auto&& of) {
      Expr x = of(0);
      for (size_t j = 1; j < all.size(); ++j) x = select(eq(k, Scalar(int64_t(j))), of(j), x);
      return x;
    };
    Expr at = chosen([&](size_t j) { return all[j].at; }), partial = none;
    Expr last = eq(at, at);
    for (size_t j = 0; j < all.size(); ++j) {
      Expr same = eq(all[j].at, at), before = k >= Scalar(int64_t(j));
      partial = partial + select(same & before, all[j].weight, none);
      last = last & bit_not(same & (k < Scalar(int64_t(j))));
    }
    return {at, select(last, partial, none), partial};
  }

  // Results that may read element i: `users()` of them from this one.
  Expr first_user(Expr i) const {
    double reach = nearest() ? 0 : half_width(), h = align_ || mode_ == "nearest" ? 0 : 0.5;
    Expr step = scale(DType::Float64), x = cast(i, DType::Float64);
    Expr low = smooth()    ? x + 0.5 - support(DType::Float64) - 1.0
               : nearest() ? x
                           : x - reach + (align_ ? 0.0 : 0.5);
    if (smooth()) h = 0.5;
    Expr at = cast(floor(low / select(eq(step, 0.0), 1.0, step) - h), DType::Int64) - Scalar(int64_t(1));
    return select(eq(step, 0.0), zero_of(DType::Int64), at);
  }
  SymInt users() const {
    double wide = nearest() ? 1 : 2 * half_width();
    SymInt more = int64_t(smooth() ? 2 * half_width() + 6 : 4);
    if (align_ && !(from_ > kOne)) return to_;
    if (given_ > 0 && !align_) return SymInt(int64_t(std::ceil(wide * given_ + 2 * given_))) + more;
    SymInt a = align_ ? to_ - kOne : to_, b = align_ ? from_ - kOne : from_;
    return SymInt(int64_t(wide) + (smooth() ? 2 : 0)) * (a / b + kOne) + more;
  }

 private:
  double half_width() const { return mode_.ends_with("linear") ? 1 : mode_.ends_with("cubic") ? 2 : 3; }
  static SymInt ratio(SymInt a, SymInt b) { return (a + b - kOne) / b; }
  // Elements of the input a step of the result.
  Expr scale(DType t) const {
    if (align_)
      return to_ > kOne ? cast(n_of(from_ - kOne), t) / cast(n_of(to_ - kOne), t) : constant(0.0, t);
    if (given_ > 0) return constant(1 / given_, t);
    return cast(n_of(from_), t) / cast(n_of(to_), t);
  }
  Expr support(DType t) const { return max(scale(t), 1.0) * half_width(); }
  Expr centre(Expr o) const { return (cast(o, type_) + 0.5) * scale(type_); }

  std::string mode_;
  bool align_;
  double given_;
  SymInt from_, to_;
  DType type_;
};
enum Interpolation { linear, nearest, cubic };

}  // namespace facula::catalog::resample_helpers
