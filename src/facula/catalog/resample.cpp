// Images at other sizes and at other places: interpolation, which treats one dimension after the other, grids of
// places, and what is found there.
#include <algorithm>
#include <array>
#include <cmath>

#include "facula/catalog/resample_helpers.h"
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
using namespace facula::catalog::resample_helpers;

namespace {
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
}
