// Images at other sizes and at other places: interpolation, which treats one dimension after the other, grids of
// places, and what is found there.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::wide;
namespace d = facula::dtypes;

namespace {

const SymInt kOne = int64_t(1), kZero = int64_t(0);
constexpr DTypeSet kBytes = dtypes_where([](DType t) { return t == DType::UInt8; });

Expr n_of(SymInt n) { return loop::size(n); }
Expr inside(Expr at, Expr n) { return (at >= Scalar(int64_t(0))) & (at < n); }
Expr clipped(Expr at, Expr n) { return max(min(at, n - Scalar(int64_t(1))), Scalar(int64_t(0))); }
Expr zero_of(DType t) { return constant(Scalar(int64_t(0)), t); }

// The cubic kernel of Keys, 1981, at distances below 1 and from 1 to 2.
Expr near_cubic(Expr x, double a) { return ((x * (a + 2)) - (a + 3)) * x * x + 1.0; }
Expr far_cubic(Expr x, double a) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; }

struct Tap {
  Expr at, weight;
};
// The four taps of the cubic kernel around floor(place).
std::vector<Expr> cubic_weights(Expr t) {
  constexpr double a = -0.75;
  Expr rest = 1.0 - t;
  return {far_cubic(t + 1.0, a), near_cubic(t, a), near_cubic(rest, a), far_cubic(rest + 1.0, a)};
}

// `before` become `after`; those that are known only when a program runs are looked at then, by each dimension's rule.
void check_positive(SymSpan input, SymSpan before, SymSpan after) {
  bool positive = true;
  for (auto n : before) positive &= sym::may_be_less(kZero, n);
  for (auto n : after) positive &= sym::may_be_less(kZero, n);
  runtime_check(positive, "interpolate") << "input and output sizes should be greater than 0, but got input "
                                         << to_string(input) << " and output size " << to_string(after);
}

bool keeps_equal_sizes(std::string_view mode) {
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

DType places_type(const Call& c) {
  DType t = compute_type(c.dtype("self"));
  return is_floating(t) ? t : DType::Float32;
}

// `dim` of bytes interpolated as PyTorch does: with weights of 16 bits, which have as many for fractions as the largest
// of all leaves.
Tensor resampled_bytes(const Tensor& x, int dim, SymInt size, double scale, const std::string& mode,
                       bool align) {
  auto [at, weight, partial] = _byte_weights(x.size(dim), size, scale, mode, align);
  if (mode.starts_with("smooth")) partial = weight = div(weight, sum(weight, {-1}, true));
  Tensor powers = bitwise_left_shift(Scalar(int64_t(2)), arange(22)), one = ones({}, DType::Int64);
  Tensor fits = lt(floor(add(mul(amax(partial), to_dtype(powers, DType::Float64)), 0.5)), 32768.0);
  Tensor bits = sum(fits), whole = mul(weight, to_dtype(bitwise_left_shift(one, bits), DType::Float64));
  whole = to_dtype(trunc(add(whole, copysign(full({}, 0.5, DType::Float64), whole))), DType::Int32);
  Tensor half = bitwise_left_shift(one, sub(bits, 1));
  Tensor y = bitwise_right_shift(add(to_dtype(_weighted_bytes(x, at, whole, dim), DType::Int64), half), bits);
  return to_dtype(clamp(y, Scalar(int64_t(0)), Scalar(int64_t(255))), DType::UInt8);
}

Expr typed_weight(Expr w, Expr x) { return w.dtype() == x.dtype() ? w : cast(w, x.dtype()); }

// ---- sampling at the places of a grid
struct Grid {
  int64_t interpolation, padding;
  bool align, volume;
};
Grid grid_of(const Call& c) {
  return {c.integer("interpolation_mode").guard_int(), c.integer("padding_mode").guard_int(),
          c.flag("align_corners"), c.sizes("input").size() == 5};
}
enum Interpolation { linear, nearest, cubic };
enum Padding { zeros, border, reflection };

// A position clamped to [0, last]. Its derivative is a factor of the gradient, 0 outside, so that a NaN gradient stays NaN. A NaN
// position becomes 0 in an image and `last` in a volume, which follows from the comparisons of PyTorch's kernels.
Expr clamped_place(const Grid& g, Expr x, Expr last) {
  DType t = x.dtype();
  Expr inside = (x > 0.0) & (x < last), none = zero_of(t);
  Expr beyond = g.volume ? (x >= last) | isnan(x) : x >= last;
  Expr counted = select(isnan(x) | isinf(x), none, x) * select(inside, constant(1.0, t), none);
  return select(inside, counted, counted + select(beyond, last, none));
}
// A place in elements of a dimension of n, moved inside as the padding asks.
Expr padded(const Grid& g, Expr x, Expr n) {
  DType t = x.dtype();
  Expr last = cast(n - Scalar(int64_t(1)), t);
  if (g.padding == zeros) return x;
  if (g.padding == reflection) {
    Expr low = constant(g.align ? 0.0 : -0.5, t), extent = g.align ? last : cast(n, t);
    Expr from_low = abs(x - low), whole = select(eq(extent, 0.0), 1.0, extent);
    Expr extra = fmod(from_low, whole), flips = floor(from_low / whole);
    Expr even = eq(fmod(flips, 2.0), 0.0);
    x = select(eq(extent, 0.0), zero_of(t), select(even, extra + low, extent - extra + low));
  }
  return clamped_place(g, x, last);
}
// Cubic weights have both signs, and their derivatives cancel: they, and sums with them, are taken in float64.
Expr exact(const Grid& g, Expr x) { return g.interpolation == cubic ? cast(x, DType::Float64) : x; }
// The element that is read along one dimension.
struct Read {
  Expr at, weight, valid;
};
std::vector<Read> reads(const Grid& g, Expr place, SymInt size) {
  Expr n = n_of(size);
  place = exact(g, place);
  DType t = place.dtype();
  Expr x = g.align ? (place + 1.0) / 2.0 * cast(n - Scalar(int64_t(1)), t)
                   : ((place + 1.0) * cast(n, t) - 1.0) / 2.0;
  auto read = [&](Expr at, Expr weight) {
    Expr valid = (at >= 0.0) & (at < cast(n, t));
    return Read{clipped(cast(at, DType::Int64), n), weight, valid};
  };
  if (g.interpolation == cubic) {
    Expr first = floor(x);
    auto weights = cubic_weights(x - first);
    std::vector<Read> four;
    for (int k = 0; k < 4; ++k) four.push_back(read(padded(g, first + double(k - 1), n), weights[size_t(k)]));
    return four;
  }
  x = padded(g, x, n);
  if (g.interpolation == nearest) return {read(round(x), constant(1.0, t))};
  Expr first = floor(x);
  return {read(first, first + 1.0 - x), read(first + 1.0, x - first)};
}

// The place of element i among n of [-1, 1], whose ends are centres of elements or their edges.
Expr even_place(Expr i, SymInt size, bool align, DType t) {
  if (!(size > kOne)) return constant(0.0, t);
  Expr n = cast(n_of(size), t), steps = cast(n_of(size - kOne), t), step = constant(2.0, t) / steps;
  Expr x = cast(i, t);
  Expr place = select(i < n_of(size / SymInt(int64_t(2))), x * step - 1.0, 1.0 - (steps - x) * step);
  return align ? place : place * (steps / n);
}
// The same cut off to integers at each step, as PyTorch's of integer matrices.
Expr whole_place(Expr i, SymInt size, bool align, DType t) {
  if (!(size > kOne)) return zero_of(t);
  Expr place = cast(even_place(i, size, true, DType::Float32), t);
  if (align) return place;
  Expr steps = cast(n_of(size - kOne), t);
  return cast(cast(place * steps, DType::Float32) / cast(n_of(size), DType::Float32), t);
}
Expr place_of(Expr i, SymInt size, bool align, DType t) {
  if (is_complex(t)) return cast(even_place(i, size, align, real_of(t)), t);
  return is_floating(t) ? even_place(i, size, align, t) : whole_place(i, size, align, t);
}

// ---- interpolation and sampling by PyTorch's names of modes
void check_mode(int rank, std::string_view mode, bool aligned, bool antialias) {
  const char* name = "interpolate";
  bool linear = mode == "bilinear", cubic = mode == "bicubic", lanczos = mode == "lanczos";
  value_check(!antialias || ((linear || cubic || lanczos) && rank == 4), name)
      << "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor "
      << "as input, got " << rank << "-D input and mode '" << mode << "'";
  value_check(!lanczos || rank != 4 || !aligned, name) << "Lanczos mode does not support align_corners=True";
  value_check(!lanczos || rank != 4 || antialias, name) << "Lanczos mode requires antialias=True";
  int needed = mode == "linear" ? 3 : linear || cubic || lanczos ? 4 : mode == "trilinear" ? 5 : 0;
  bool known = needed || mode == "nearest" || mode == "area" || mode == "nearest-exact";
  supported_check(known && rank >= 3 && rank <= 5, name)
      << "Only 3D, 4D and 5D input Tensors supported (got " << rank
      << "D) for the modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got "
      << mode << ")";
  supported_check(!needed || rank == needed, name)
      << "Got " << rank << "D input, but " << mode << " mode needs " << needed << "D input";
}
std::string kernel_of(std::string_view mode, bool antialias) {
  if (mode == "nearest" || mode == "nearest-exact") return std::string(mode);
  std::string kernel = mode.ends_with("linear") ? "linear" : mode == "bicubic" ? "cubic" : "lanczos";
  return (antialias ? "smooth-" : "") + kernel;
}

Tensor interpolated(const Call& c, const Tensor& self) {
  const char* name = "interpolate";
  std::string_view mode = c.str("mode");
  bool by_size = c.has("size"), by_scale = c.has("scale_factor"), aligned = c.has("align_corners");
  bool anew = c.has("recompute_scale_factor") && c.flag("recompute_scale_factor");
  value_check(!aligned || !(mode.starts_with("nearest") || mode == "area"), name)
      << "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | "
      << "trilinear";
  aligned = aligned && c.flag("align_corners");
  value_check(!by_size || !by_scale, name) << "only one of size or scale_factor should be defined";
  value_check(by_size || by_scale, name) << "either size or scale_factor should be defined";
  value_check(!by_size || !anew, name) << "recompute_scale_factor is not meaningful with an explicit size.";
  Dims sizes;
  std::array<double, 3> scales{};
  if (by_size) sizes = Dims(c.ints("size"));
  SymSpan spatial = self.sizes().last(size_t(std::max(self.dim() - 2, 0)));
  for (size_t k = 0; by_scale && k < spatial.size(); ++k) {
    double by = c["scale_factor"].scalars()[k].to_double();
    sizes.push_back(SymInt(int64_t(std::floor(double(spatial[k].guard_int()) * by))));
    if (k < 3 && mode != "area" && !anew) scales[k] = by;
  }
  check_mode(self.dim(), mode, aligned, c.flag("antialias"));
  bool filled = std::ranges::none_of(self.sizes().subspan(1), [](const SymInt& n) { return n == kZero; });
  runtime_check(mode == "area" || filled, name)
      << "only the batch may be empty, got " << to_string(self.sizes());
  if (mode == "area")
    return self.dim() == 3   ? adaptive_avg_pool1d(self, sizes)
           : self.dim() == 4 ? adaptive_avg_pool2d(self, sizes)
                             : adaptive_avg_pool3d(self, sizes);
  return _interpolate(self, sizes, scales[0], scales[1], scales[2], kernel_of(mode, c.flag("antialias")),
                      aligned);
}

// The place of the given name among those of three.
int64_t place_among(const Call& c, const char* parameter, std::array<const char*, 3> names) {
  auto at = std::find(names.begin(), names.end(), c.str(parameter));
  value_check(at != names.end(), "grid_sample")
      << "expected " << parameter << " to be '" << names[0] << "', '" << names[1] << "' or '" << names[2]
      << "', but got: '" << c.str(parameter) << "'";
  return at - names.begin();
}
Tensor sampled(const Call& c, const Tensor& input, const Tensor& grid) {
  int64_t mode = place_among(c, "mode", {"bilinear", "nearest", "bicubic"}),
          padding = place_among(c, "padding_mode", {"zeros", "border", "reflection"});
  return grid_sampler(input, grid, mode, padding, c.flag("align_corners"));
}
Tensor sampled_by_numbers(const Call& c, const Tensor& input, const Tensor& grid, int rank) {
  runtime_check(input.dim() == rank, c.name())
      << "expected an input of " << rank << " dimensions, got shape " << to_string(input.sizes());
  return grid_sampler(input, grid, c.integer("interpolation_mode").guard_int(),
                      c.integer("padding_mode").guard_int(), c.flag("align_corners"));
}

std::string upsample_name(const Call& c) {
  std::string mode(c.str("mode"));
  const char* antialiased = mode.starts_with("smooth-") ? "Aa" : "";
  if (*antialiased) mode.erase(0, std::string("smooth-").size());
  int rank = c.rank("self") - 2;
  auto of = [&](const char* stem, const char* end) {
    return grad_name(stem + (std::to_string(rank) + "D") + end);
  };
  const char* linear[] = {"UpsampleLinear", "UpsampleBilinear", "UpsampleTrilinear"};
  if (mode == "linear") return of(linear[rank - 1], antialiased);
  if (mode == "cubic") return of("UpsampleBicubic", antialiased);
  if (mode == "nearest") return of("UpsampleNearest", "");
  return mode == "nearest-exact" ? of("UpsampleNearestExact", "") : "";
}

}  // namespace

FACULA_FAMILY(resample) {
  define("_resample(Tensor self, int dim, SymInt size, float scale, str mode, bool align_corners) -> Tensor")
      .doc(
          "`self` with `dim` interpolated to `size`; smooth modes give sums that are not divided by their weights'.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) {
        SymInt from = c.size("self", c.dim("dim"));
        check_positive(c.sizes("self"), {&from, 1}, c["size"].ints());
        return with(c.sizes("self"), c.dim("dim"), c.integer("size"));
      })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        int k = c.dim("dim");
        SymInt n = c.size("self", k);
        Resampling r(c, n, c.integer("size"), places_type(c));
        if (r.is_identity()) return c.load("self", i);
        auto element = [&](Expr at) { return c.load("self", with(i, k, at)); };
        if (r.smooth()) {
          auto span = r.span(i[size_t(k)]);
          return reduce(c, monoid::sum, {r.longest()}, [&](Index b) {
            Expr at = span.start + b[0];
            Expr x = element(clipped(at, n_of(n)));
            return select(at < span.end, x * typed_weight(r.smooth_weight(i[size_t(k)], at), x),
                          zero_of(x.dtype()));
          });
        }
        Expr sum;
        for (auto& tap : r.taps(i[size_t(k)])) {
          Expr x = element(tap.at);
          Expr part = r.nearest() ? x : x * typed_weight(tap.weight, x);
          sum = sum ? sum + part : part;
        }
        return sum;
      })
      // A gather; derived, a scatter.
      .transposed_by("_resample_backward")
      .samples({"self[5], dim=0, size=8, scale=0, mode='nearest', align_corners=False",
                "self[2, 7], dim=1, size=4, scale=0, mode='nearest-exact', align_corners=False",
                "self[2, 5], dim=1, size=9, scale=1.9, mode='linear', align_corners=False",
                "self[4, 3], dim=0, size=7, scale=0, mode='linear', align_corners=True",
                "self[2, 5], dim=1, size=9, scale=0, mode='cubic', align_corners=False",
                "self[2, 9], dim=1, size=4, scale=0, mode='smooth-linear', align_corners=False",
                "self[2, 9], dim=1, size=5, scale=0, mode='smooth-cubic', align_corners=False",
                "self[2, 5], dim=1, size=9, scale=0, mode='smooth-lanczos', align_corners=False"});
  define(
      "_resample_backward(Tensor self, int dim, SymInt n, float scale, str mode, bool align_corners) -> Tensor")
      .doc(
          "The gradient of _resample for an input of `n` elements along `dim`: each asks the results that read it.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return with(c.sizes("self"), c.dim("dim"), c.integer("n")); })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        int k = c.dim("dim");
        SymInt m = c.size("self", k);
        Resampling r(c, c.integer("n"), m, places_type(c));
        if (r.is_identity()) return c.load("self", i);
        Expr own = i[size_t(k)], first = r.first_user(own);
        return reduce(c, monoid::sum, {r.users()}, [&](Index b) {
          Expr o = first + b[0], at = clipped(o, n_of(m));
          Expr g = c.load("self", with(i, k, at)), none = zero_of(g.dtype()), weight = none;
          if (r.smooth()) {
            auto span = r.span(at);
            weight = select((own >= span.start) & (own < span.end), typed_weight(r.smooth_weight(at, own), g),
                            none);
          } else {
            for (auto& tap : r.taps(at)) {
              Expr w = r.nearest() ? constant(1.0, g.dtype()) : typed_weight(tap.weight, g);
              weight = weight + select(eq(tap.at, own), w, none);
            }
          }
          return select(inside(o, n_of(m)), g * weight, none);
        });
      })
      .samples({"self[8], dim=0, n=5, scale=0, mode='nearest', align_corners=False",
                "self[2, 9], dim=1, n=5, scale=0, mode='linear', align_corners=False",
                "self[2, 4], dim=1, n=9, scale=0, mode='smooth-linear', align_corners=False"});
  define(
      "_byte_weights(SymInt n, SymInt size, float scale, str mode, bool align_corners) -> (Tensor at, Tensor weight, Tensor partial)")
      .doc(
          "For each of `size` results those of n elements that it reads, their weights, and sums of weights of one element.")
      .bind(hidden)
      .non_differentiable()
      .result([](const Call&) { return std::vector<DType>{DType::Int64, DType::Float64, DType::Float64}; })
      .shapes([](const Call& c) {
        check_positive(c["n"].ints(), c["n"].ints(), c["size"].ints());
        Resampling r(c, c.integer("n"), c.integer("size"), DType::Float64);
        return std::vector<Dims>(3, Dims{c.integer("size"), r.width()});
      })
      .loop([](const LoopCall& c, Index i) {
        return Resampling(c, c.integer("n"), c.integer("size"), DType::Float64).entry(i[0], i[1]);
      })
      .samples({"n=5, size=8, scale=0, mode='cubic', align_corners=False",
                "n=5, size=3, scale=0, mode='linear', align_corners=True",
                "n=9, size=4, scale=0, mode='smooth-cubic', align_corners=False"});
  define("_weighted_bytes(Tensor self, Tensor at, Tensor weight, int dim) -> Tensor")
      .doc("Sums of the elements `at` of `dim`, times their weights.")
      .bind(hidden)
      .dtypes(kBytes | dtypes_where([](DType t) { return t == DType::Int32 || t == DType::Int64; }))
      .promote(Promote::none)
      .non_differentiable()
      .result([](const Call&) { return std::vector<DType>{DType::Int32}; })
      .shape([](const Call& c) { return with(c.sizes("self"), c.dim("dim"), c.size("at", 0)); })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        int k = c.dim("dim");
        return reduce(c, monoid::sum, {c.size("at", 1)}, [&](Index b) {
          Index tap{i[size_t(k)], b[0]};
          Expr x = c.load("self", with(i, k, c.index_load("at", tap, c.size("self", k))));
          return cast(x, DType::Int32) * cast(c.load("weight", tap), DType::Int32);
        });
      })
      .samples({"self[2, 5], at<5>[3, 2], weight[3, 2], dim=1"});
  define(
      "_interpolate(Tensor self, SymInt[] size, float scale0, float scale1, float scale2, str mode, bool align_corners) -> Tensor")
      .doc(
          "[N, C, ...] with the last dimensions interpolated to `size`; scales are how they were computed, or 0.")
      .grad_name(upsample_name)
      .bind(hidden)
      .dtypes(d::floating | kBytes)
      .composite([](const Call& c, const Tensor& self) {
        auto size = c.ints("size");
        std::string mode(c.str("mode"));
        bool smooth = mode.starts_with("smooth");
        check_positive(self.sizes(), self.sizes().last(size.size()), size);
        bool bytes = !is_floating(self.dtype());
        const char* scales[] = {"scale0", "scale1", "scale2"};
        Tensor x = !bytes ? wide(self) : mode.starts_with("nearest") ? to(self, DType::Float32) : self;
        for (size_t k = size.size(); k-- > 0;) {
          int dim = self.dim() - int(size.size() - k);
          SymInt n = self.size(dim);
          bool same = sym::must_equal(size[k], n);
          if (same && keeps_equal_sizes(mode)) continue;
          double scale = c.real(scales[k]);
          if (x.dtype() == DType::UInt8) {
            if (!same) x = resampled_bytes(x, dim, size[k], scale, mode, c.flag("align_corners"));
            continue;
          }
          x = _resample(x, dim, size[k], scale, mode, c.flag("align_corners"));
          if (smooth) {
            Tensor sums =
                _resample(ones(Dims{n}, places_type(c)), 0, size[k], scale, mode, c.flag("align_corners"));
            Dims column(size_t(self.dim() - dim), kOne);
            column[0] = size[k];
            x = div(x, view(sums, column));
          }
        }
        return x.is_same(self) ? clone(self) : (x.dtype() == self.dtype() ? x : to(x, self.dtype()));
      })
      .samples(
          {"self[2, 1, 5, 4], size=[7, 8], scale0=0, scale1=0, scale2=0, mode='linear', align_corners=False",
           "self[1, 2, 3], size=[6], scale0=2, scale1=0, scale2=0, mode='nearest', align_corners=False",
           "self[1, 2, 7, 8], size=[4, 5], scale0=0, scale1=0, scale2=0, mode='smooth-cubic', align_corners=False"});

  define(
      "grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor")
      .doc(
          "Elements of [N, C, ...] at the places of grid [N, ..., dimensions], from -1 to 1; the last dimension first.")
      .grad_name(
          [](const Call& c) { return grad_name("GridSampler" + std::to_string(c.rank("input") - 2) + "D"); })
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .shape([](const Call& c) {
        auto input = c.sizes("input"), grid = c.sizes("grid");
        index_check(!input.empty() && !grid.empty(), "grid_sampler")
            << "expected 4D or 5D input and grid, got " << to_string(input) << " and " << to_string(grid);
        runtime_check(c.dtype("input") == c.dtype("grid"), "grid_sampler")
            << "expected input and grid to have same dtype, but input has " << c.dtype("input")
            << " and grid has " << c.dtype("grid");
        runtime_check((input.size() == 4 || input.size() == 5) && input.size() == grid.size(), "grid_sampler")
            << "expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
            << to_string(input) << " and grid with sizes " << to_string(grid);
        runtime_check(grid.back() == SymInt(int64_t(input.size()) - 2), "grid_sampler")
            << "expected grid to have size " << input.size() - 2
            << " in last dimension, but got grid with sizes " << to_string(grid);
        runtime_check(grid[0] == input[0], "grid_sampler")
            << "expected grid and input to have same batch size, but got input with sizes "
            << to_string(input) << " and grid with sizes " << to_string(grid);
        auto among = [&](const char* mode) {
          int64_t given = c.integer(mode).guard_int();
          value_check(given >= 0 && given <= 2, "grid_sampler")
              << "expected " << mode << " to be 0, 1 or 2, got " << given;
        };
        among("interpolation_mode");
        among("padding_mode");
        bool filled = true;
        for (size_t k = 2; k < input.size(); ++k) filled &= input[k] > kZero;
        runtime_check(filled, "grid_sampler")
            << "expected input to have non-empty spatial dimensions, but input has sizes "
            << to_string(input);
        runtime_check(input.size() == 4 || grid_of(c).interpolation != cubic, "grid_sampler")
            << "bicubic interpolation only supports 4D input";
        Dims out{input[0], input[1]};
        for (size_t k = 1; k + 1 < grid.size(); ++k) out.push_back(grid[k]);
        return out;
      })
      .loop([](const LoopCall& c, Index i) {
        Grid g = grid_of(c);
        auto sizes = c.sizes("input");
        size_t dims = sizes.size() - 2;
        std::vector<std::vector<Read>> along;
        for (size_t k = 0; k < dims; ++k) {
          Index at{i[0]};
          at.insert(at.end(), i.begin() + 2, i.end());
          at.push_back(integer(int64_t(dims - 1 - k)));
          along.push_back(reads(g, c.load("grid", at), sizes[2 + k]));
        }
        // The sum over dimensions k and on, at the elements chosen before.
        std::function<Expr(size_t, Index, Expr)> sum = [&](size_t k, Index at, Expr valid) -> Expr {
          if (k == dims) {
            Expr x = exact(g, c.load("input", at));
            return select(valid, x, zero_of(x.dtype()));
          }
          Expr total;
          for (auto& r : along[k]) {
            Index next = at;
            next.push_back(r.at);
            Expr part = sum(k + 1, next, valid ? valid & r.valid : r.valid);
            // The weights of a place at infinity are NaN. In volumes PyTorch does not read them outside of the input.
            Expr weight = dims == 3 ? select(r.valid, r.weight, zero_of(r.weight.dtype())) : r.weight;
            if (g.interpolation != nearest) part = part * weight;
            total = total ? total + part : part;
          }
          return total;
        };
        return cast(sum(0, {i[0], i[1]}, {}), compute_type(c.dtype("input")));
      })
      .samples(
          {"input[2, 3, 4, 5], grid[2, 3, 2, 2], interpolation_mode=0, padding_mode=0, align_corners=False",
           "input[1, 2, 4, 5], grid[1, 3, 3, 2], interpolation_mode=0, padding_mode=1, align_corners=True",
           "input[1, 2, 4, 5], grid[1, 3, 3, 2], interpolation_mode=1, padding_mode=0, align_corners=False",
           "input[1, 2, 4, 5], grid[1, 3, 3, 2], interpolation_mode=2, padding_mode=2, align_corners=False",
           "input[1, 2, 3, 4, 3], grid[1, 2, 3, 2, 3], interpolation_mode=0, padding_mode=2, align_corners=False"});
  define(
      "_interpolate_by_name(Tensor self, SymInt[1]? size=None, float[1]? scale_factor=None, str mode='nearest', bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False) -> Tensor")
      .python(
          "interpolate(input, size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None, antialias=False)",
          "size = each_dimension('output size', size, input)",
          "scale_factor = each_dimension('scale_factor', scale_factor, input)",
          "size, scale_factor, recompute_scale_factor = whole_multiples(size, scale_factor, recompute_scale_factor, input)")
      .doc(
          "[N, C, ...] interpolated to `size`, or to scale_factor times its size. `mode`: 'nearest', 'nearest-exact', 'linear' (3-D input), 'bilinear', "
          "'bicubic' (4-D), 'trilinear' (5-D), 'area' (means) or 'lanczos' (with `antialias`, which averages what becomes smaller). "
          "align_corners keeps the centres of corners.")
      .bind(hidden)
      .dtypes(d::floating | kBytes)
      .strict()
      .procedure([](const Call& c, const Tensor& self) { return interpolated(c, self); })
      .samples({"self[2, 1, 5, 4], size=[7, 8], mode='bilinear'", "self[1, 2, 3], scale_factor=[2.0]",
                "self[1, 2, 6], size=[3], mode='area'"});
  define(
      "_grid_sample(Tensor input, Tensor grid, str mode='bilinear', str padding_mode='zeros', bool align_corners=False) -> Tensor")
      .python("grid_sample(input, grid, mode='bilinear', padding_mode='zeros', align_corners=None)",
              "align_corners = aligned(align_corners)")
      .doc(
          "Elements of [N, C, H, W] at the places [N, H', W', 2], x and y from -1 to 1; three for volumes. `mode`: 'bilinear', 'nearest', 'bicubic'; "
          "padding_mode: 'zeros', 'border', 'reflection'.  Jaderberg et al., 2015.")
      .bind(hidden)
      .procedure(
          [](const Call& c, const Tensor& input, const Tensor& grid) { return sampled(c, input, grid); })
      .samples({"input[2, 3, 4, 5], grid[2, 3, 2, 2]",
                "input[1, 2, 4, 5], grid[1, 3, 3, 2], mode='nearest', padding_mode='border'"});
  define(
      "grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor")
      .doc("grid_sampler of images [N, C, H, W].")
      .bind(function)
      .procedure([](const Call& c, const Tensor& input, const Tensor& grid) {
        return sampled_by_numbers(c, input, grid, 4);
      })
      .samples(
          {"input[2, 3, 4, 5], grid[2, 3, 2, 2], interpolation_mode=0, padding_mode=0, align_corners=False"});
  define(
      "grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor")
      .doc("grid_sampler of volumes [N, C, D, H, W].")
      .bind(function)
      .procedure([](const Call& c, const Tensor& input, const Tensor& grid) {
        return sampled_by_numbers(c, input, grid, 5);
      })
      .samples(
          {"input[1, 2, 3, 4, 3], grid[1, 2, 3, 2, 3], interpolation_mode=0, padding_mode=2, align_corners=False"});
  define("affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor")
      .autocast(Autocast::lower)
      .doc(
          "The places where a result of `size` reads its input, moved by the matrices theta [N, dimensions, dimensions + 1].")
      .bind(function)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        auto size = c.ints("size"), theta = c.sizes("theta");
        index_check(theta.size() > 1, "affine_grid_generator")
            << "expected theta [N, 2, 3] or [N, 3, 4], got shape " << to_string(theta);
        runtime_check((size.size() == 4 || size.size() == 5) && theta.size() == 3 && theta[0] == size[0] &&
                          theta[1] == SymInt(int64_t(size.size()) - 2) &&
                          theta[2] == SymInt(int64_t(size.size()) - 1),
                      "affine_grid_generator")
            << "expected theta [N, 2, 3] for size [N, C, H, W] or [N, 3, 4] for [N, C, D, H, W], got theta "
            << to_string(theta) << " and size " << to_string(size);
        Dims out{size[0]};
        for (auto n : size.last(size.size() - 2)) out.push_back(n);
        out.push_back(theta[1]);
        return out;
      })
      .loop([](const LoopCall& c, Index i) {
        auto size = c.ints("size");
        size_t dims = size.size() - 2;
        auto entry = [&](size_t column) {
          return c.load("theta", {i[0], i.back(), integer(int64_t(column))});
        };
        Expr last = entry(dims), sum;
        for (size_t j = 0; j < dims; ++j) {
          size_t k = dims - 1 - j;  // the last dimension comes first
          Expr part = place_of(i[1 + k], size[2 + k], c.flag("align_corners"), last.dtype()) * entry(j);
          sum = sum ? sum + part : part;
        }
        return sum + last;
      })
      .samples({"theta[2, 2, 3], size=[2, 1, 3, 4], align_corners=False",
                "theta[1, 3, 4], size=[1, 2, 2, 3, 4], align_corners=True"});
}
