// Pools of volumes.
#include "facula/autograd/calls.h"
#include "facula/catalog/widened.h"
#include "facula/catalog/window_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::narrowed, catalog::wide;
namespace d = facula::dtypes;
using namespace facula::catalog::window_helpers;

namespace {
// Stride as given, or the kernel's size.
Dims stride_of(const Call& c) {
  return c.has("stride") && !c.ints("stride").empty() ? three(c, "stride") : three(c, "kernel_size");
}
void check_pool(const Call& c, const Tensor& self, const Dims& stride, const Dims& dilation) {
  check_images(c, self.sizes(), 4, "[N, C, D, H, W]");
  Dims kernel = three(c, "kernel_size"), padding = three(c, "padding"), out;
  for (size_t k = 0; k < 3; ++k) {
    runtime_check(kernel[k] > kZero && stride[k] > kZero && dilation[k] > kZero, c.name())
        << "kernel size, stride and dilation must be greater than zero";
    runtime_check(padding[k] >= kZero && !(padding[k] > kernel[k] / SymInt(int64_t(2))), c.name())
        << "pad should be at most half of kernel size, but got pad=" << padding[k]
        << " and kernel_size=" << kernel[k];
    out.push_back(Window{kernel[k], stride[k], padding[k], dilation[k]}.places(self.size(int(k) - 3),
                                                                               c.flag("ceil_mode")));
    runtime_check(out[k] > kZero, c.name()) << "given input size " << to_string(self.sizes())
                                            << ", the output size is too small: " << to_string(SymSpan(out));
  }
}
// [N?, C, D, H, W] as [N? * C, D, H, W], which 2-d pools take for channels and for a column of rows.
Tensor volumes(const Tensor& x) { return x.dim() == 4 ? x : flatten(x, 0, 1); }
Tensor rows(const Tensor& x) { return flatten(x, -2, -1); }  // [.., D, H * W]
// [.., D, H * W]
Tensor like_input(const Tensor& y, const Tensor& self, const Dims& plane) {
  Dims sizes(self.sizes().first(size_t(self.dim()) - 3));
  sizes.push_back(y.size(-2));
  for (auto s : plane) sizes.push_back(s);
  return reshape(y, sizes);
}
// The maxima of windows along D from the maxima of each plane's windows, and their positions in the volume.
std::tuple<Tensor, Tensor> deepest(const Tensor& self, const Tensor& best, const Tensor& at,
                                   const std::function<std::tuple<Tensor, Tensor>(const Tensor&)>& along) {
  Dims plane(best.sizes().last(2));
  SymInt width = product(SymSpan(plane)), area = self.size(-1) * self.size(-2);
  auto [v, p] = along(unsqueeze(rows(best), 1));  // a batch of one channel, as only a batch may be empty
  Tensor value = squeeze(v, {kOne}), place = squeeze(p, {kOne});  // depth * width + window
  Tensor depth = autograd::invoke("floor_divide", {place, width});
  Tensor in_plane = gather(flatten(at, -3), -1, flatten(place, -2));
  Tensor index = add(autograd::invoke("mul", {depth, area}), reshape(in_plane, place.sizes()));
  return {like_input(value, self, plane), like_input(index, self, plane)};
}
std::tuple<Tensor, Tensor> max_pooled(const Call& c, const Tensor& self) {
  Dims kernel = three(c, "kernel_size"), stride = stride_of(c), padding = three(c, "padding"),
       dilation = three(c, "dilation");
  check_pool(c, self, stride, dilation);
  bool ceil = c.flag("ceil_mode");
  auto [best, at] = max_pool2d_with_indices(volumes(self), last_two(kernel), last_two(stride),
                                            last_two(padding), last_two(dilation), ceil);
  auto [values, indices] = deepest(self, best, at, [&](const Tensor& x) {
    return max_pool2d_with_indices(x, Dims{kernel[0], kOne}, Dims{stride[0], kOne}, Dims{padding[0], kZero},
                                   Dims{dilation[0], kOne}, ceil);
  });
  if (!is_in_channels_last_3d(self)) return {values, indices};
  constexpr auto format = MemoryFormat::channels_last_3d;
  return {contiguous(values, format), contiguous(indices, format)};
}
Dims adaptive_target(const Call& c, const Tensor& self) {
  check_images(c, self.sizes(), 4, "[N, C, D, H, W]");
  Dims to = three(c, "output_size");
  for (auto n : to)
    runtime_check(sym::may_be_at_most(kZero, n), c.name())
        << "elements of output_size must be greater than or equal to 0 but received "
        << to_string(SymSpan(to));
  return to;
}
}  // namespace

FACULA_FAMILY(pool3d) {
  define(
      "max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) "
      "-> (Tensor, Tensor)")
      .python(
          "max_pool3d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window [..., D, H, W], and its position in the D x H x W volume.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::integral | d::floating)
      .procedure([](const Call& c, const Tensor& self) { return max_pooled(c, self); })
      .samples({"self![1, 2, 4, 5, 4], kernel_size=[2]",
                "self![2, 5, 4, 6], kernel_size=[3, 2, 3], stride=[2], padding=[1], dilation=[1, 2, 1]"});
  define(
      "max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor")
      .python(
          "max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window [..., D, H, W]; stride defaults to the kernel's size.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::integral | d::floating)
      .procedure([](const Call& c, const Tensor& self) { return std::get<0>(max_pooled(c, self)); })
      .samples({"self![1, 2, 4, 5, 4], kernel_size=[2]",
                "self![2, 5, 4, 6], kernel_size=[3], stride=[2], padding=[1], ceil_mode=True"});
  define(
      "avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor")
      .python(
          "avg_pool3d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, *, out=None)")
      .doc("Mean of each window [..., D, H, W].")
      .autocast(Autocast::fp32)
      .bind(nn_functional)
      .dtypes(d::integral | d::floating)
      .procedure([](const Call& c, const Tensor& self) {
        Dims kernel = three(c, "kernel_size"), stride = stride_of(c), padding = three(c, "padding");
        check_pool(c, self, stride, Dims{kOne, kOne, kOne});
        bool ceil = c.flag("ceil_mode"), count = c.flag("count_include_pad");
        std::optional<SymInt> none, one, divisor;  // the planes' sums where a divisor of all is given
        if (c.has("divisor_override")) {
          divisor = c.integer("divisor_override");
          runtime_check(*divisor != kZero, "avg_pool3d") << "divisor must be not zero";
          one = kOne;
        }
        auto pooled = [&](const Tensor& x, std::optional<SymInt> of_planes, std::optional<SymInt> of_all) {
          Tensor planes = avg_pool2d(volumes(x), last_two(kernel), last_two(stride), last_two(padding), ceil,
                                     count, of_planes);
          Tensor y = avg_pool2d(unsqueeze(rows(planes), 1), Dims{kernel[0], kOne}, Dims{stride[0], kOne},
                                Dims{padding[0], kZero}, ceil, count, of_all);
          return like_input(y, x, Dims(planes.sizes().last(2)));
        };
        if (is_floating(self.dtype())) return narrowed(pooled(wide(self), one, divisor), self.dtype());
        // Whole numbers are divided once: by what sums of ones and their mean tell.
        Tensor sums = pooled(self, kOne, kOne), ones = ones_like(self, DType::Float64);
        if (divisor) return div(sums, Scalar(divisor->guard_int()), "trunc");
        Tensor counts = round(div(pooled(ones, kOne, kOne), pooled(ones, none, none)));
        return div(sums, to_dtype(counts, self.dtype()), "trunc");
      })
      .samples(
          {"self[1, 2, 4, 5, 4], kernel_size=[2]",
           "self[2, 5, 4, 6], kernel_size=[3, 2, 3], stride=[2], padding=[1]",
           "self[1, 5, 4, 6], kernel_size=[3], stride=[2], padding=[1], ceil_mode=True, count_include_pad=False",
           "self[1, 4, 4, 4], kernel_size=[2], divisor_override=3"});
  define("_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor")
      .doc("Means of the windows that divide [..., D, H, W] evenly into `output_size`.")
      .bind(hidden)
      .dtypes(d::floating)
      .procedure([](const Call& c, const Tensor& self) {
        Dims to = adaptive_target(c, self);
        Tensor flat = rows(_adaptive_avg_pool2d(volumes(wide(self)), last_two(to)));
        Tensor y = _adaptive_avg_pool2d(unsqueeze(flat, 1), Dims{to[0], flat.size(-1)});
        return narrowed(like_input(y, self, last_two(to)), self.dtype());
      })
      .samples({"self[2, 2, 4, 5, 7], output_size=[3, 2, 3]", "self[3, 2, 4, 3], output_size=[4, 1, 2]"});
  define("_adaptive_max_pool3d(Tensor self, SymInt[3] output_size) -> (Tensor output, Tensor indices)")
      .doc(
          "Largest values of the windows that divide [..., D, H, W] evenly, and their positions in the volume.")
      .bind(hidden)
      .dtypes(d::integral | d::floating)
      .procedure([](const Call& c, const Tensor& self) {
        Dims to = adaptive_target(c, self);
        auto [best, at] = _adaptive_max_pool2d(volumes(self), last_two(to));
        return deepest(self, best, at,
                       [&](const Tensor& x) { return _adaptive_max_pool2d(x, Dims{to[0], x.size(-1)}); });
      })
      .samples({"self![2, 2, 4, 5, 7], output_size=[3, 2, 3]", "self![3, 2, 4, 3], output_size=[4, 1, 2]"});
}
