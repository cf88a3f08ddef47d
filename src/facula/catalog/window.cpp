// Windows of a dimension and their sums, and what follows from them: unfold and fold, and convolutions and pools
// over three dimensions as those over two of what one dimension's windows hold.
#include "facula/catalog/window_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::window_helpers;

namespace {
Window window(const Call& c) {
  return {c.integer("size"), c.integer("stride"), c.integer("padding"), c.integer("dilation")};
}
Expr n_of(SymInt n) { return loop::size(n); }
Expr inside(Expr at, Expr n) { return (at >= Scalar(int64_t(0))) & (at < n); }
Expr clipped(Expr at, Expr n) { return max(min(at, n - Scalar(int64_t(1))), Scalar(int64_t(0))); }
// "kernel_size=(2, 3)"
std::string shown(const char* name, SymSpan s) {
  std::string text = to_string(s);
  return std::string(name) + "=(" + text.substr(1, text.size() - 2) + ")";
}
// The windows of the two dimensions of a call of unfold or fold.
std::array<Window, 2> patches(const Call& c) {
  Dims kernel = c.ints("kernel_size", 2), stride = c.ints("stride", 2), padding = c.ints("padding", 2),
       dilation = c.ints("dilation", 2);
  std::array<Window, 2> w;
  for (size_t k = 0; k < 2; ++k) {
    w[k] = {kernel[k], stride[k], padding[k], dilation[k]};
    runtime_check(kernel[k] > kZero, c.name())
        << "kernel size should be greater than zero, but got " << shown("kernel_size", kernel);
    runtime_check(stride[k] > kZero, c.name())
        << "stride should be greater than zero, but got " << shown("stride", stride);
    runtime_check(dilation[k] > kZero, c.name())
        << "dilation should be greater than zero, but got " << shown("dilation", dilation);
    runtime_check(padding[k] >= kZero, c.name())
        << "padding should be non-negative, but got " << shown("padding", padding);
  }
  return w;
}
// The number of windows in each of two dimensions.
Dims windows_of(const Call& c, const std::array<Window, 2>& w, SymSpan sizes) {
  Dims out{w[0].places(sizes[0]), w[1].places(sizes[1])};
  runtime_check(out[0] > kZero && out[1] > kZero, c.name())
      << "given spatial size " << to_string(sizes) << ", "
      << shown("kernel_size", Dims(c.ints("kernel_size", 2))) << ", "
      << shown("dilation", Dims(c.ints("dilation", 2))) << ", "
      << shown("padding", Dims(c.ints("padding", 2))) << ", " << shown("stride", Dims(c.ints("stride", 2)))
      << ", calculated shape of the array of sliding blocks as " << to_string(SymSpan(out))
      << ", but its components must be at least one";
  return out;
}
}  // namespace

FACULA_FAMILY(window) {
  define(
      "_windows(Tensor self, int dim, SymInt size, SymInt stride, SymInt padding, SymInt dilation) -> Tensor")
      .doc(
          "Windows along `dim`, which becomes the two dimensions [element of the window, window]; 0 outside.")
      .bind(hidden)
      .shape([](const Call& c) {
        int k = c.dim("dim");
        Window w = window(c);
        return inserted(with(c.sizes("self"), k, w.places(c.sizes("self")[size_t(k)])), k, w.size);
      })
      .loop([](const LoopCall& c, Index i) {
        int k = c.dim("dim");
        Window w = window(c);
        Expr n = n_of(c.sizes("self")[size_t(k)]);
        Expr at = i[size_t(k) + 1] * n_of(w.stride) + i[size_t(k)] * n_of(w.dilation) - n_of(w.padding);
        Index j = without(i, k);
        if (w.padding == kZero) return c.load("self", with(j, k, at));
        Expr x = c.load("self", with(j, k, clipped(at, n)));
        return select(inside(at, n), x, constant(Scalar(int64_t(0)), x.dtype()));
      })
      // A gather; derived, a scatter: two axes of the result share a dimension.
      .transposed_by("_overlap_add")
      .samples({"self[7], dim=0, size=3, stride=2, padding=1, dilation=1",
                "self[2, 7, 3], dim=1, size=2, stride=1, padding=0, dilation=3",
                "self[2, 5], dim=-1, size=3, stride=3, padding=2, dilation=2"});
  define(
      "_overlap_add(Tensor self, int dim, SymInt n, SymInt stride, SymInt padding, SymInt dilation) -> Tensor")
      .doc("Sums of windows where they lie: `dim`, elements of a window, and the next become one of `n`.")
      .bind(hidden)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        int k = c.dim("dim");
        return with(without(c.sizes("self"), k + 1), k, c.integer("n"));
      })
      .loop([](const LoopCall& c, Index i) {
        size_t k = size_t(c.dim("dim"));
        Expr stride = n_of(c.integer("stride")), dilation = n_of(c.integer("dilation")),
             padding = n_of(c.integer("padding")), places = n_of(c.sizes("self")[k + 1]);
        return reduce(c, monoid::sum, {c.sizes("self")[k]}, [&](Index b) {
          Expr start = i[k] + padding - b[0] * dilation, place = floordiv(start, stride);
          Expr valid = eq(place * stride, start) & inside(place, places);
          Expr x = c.load("self", inserted(with(i, int(k), clipped(place, places)), int(k), b[0]));
          return select(valid, x, constant(Scalar(int64_t(0)), x.dtype()));
        });
      })
      .samples({"self[3, 4], dim=0, n=7, stride=2, padding=1, dilation=1",
                "self[2, 2, 4, 3], dim=1, n=7, stride=1, padding=0, dilation=3"});
  define(
      "im2col(Tensor self, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor")
      .python("unfold(input, kernel_size, dilation=1, padding=0, stride=1)")
      .doc("The windows of [N, C, H, W] as columns: [N, C * kH * kW, windows].")
      .grad_name("Im2Col")
      .bind(hidden)
      .dtypes(d::floating | d::complex | d::boolean)
      .composite([](const Call& c, const Tensor& self) {
        check_images(c, self.sizes(), 3, "[N, C, H, W]");
        auto w = patches(c);
        Dims places = windows_of(c, w, self.sizes().last(2));
        Tensor x = _windows(self, -1, w[1].size, w[1].stride, w[1].padding, w[1].dilation);
        x = _windows(x, -3, w[0].size, w[0].stride, w[0].padding, w[0].dilation);  // [N, C, kH, H', kW, W']
        Dims sizes(self.sizes().first(size_t(self.dim()) - 3));
        sizes.push_back(self.size(-3) * w[0].size * w[1].size);
        sizes.push_back(places[0] * places[1]);
        return reshape(transpose(x, -3, -2), sizes);
      })
      .samples({"self[2, 3, 4, 5], kernel_size=[2, 3]",
                "self[2, 6, 5], kernel_size=[3], dilation=[2, 1], padding=[1], stride=[1, 2]"});
  define(
      "col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor")
      .python("fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1)")
      .doc("Sums of the columns that im2col makes of [N, C, *output_size] where their windows lie.")
      .grad_name("Col2Im")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Call& c, const Tensor& self) {
        check_images(c, self.sizes(), 2, "[N, C * kH * kW, windows]");
        auto w = patches(c);
        Dims to = c.ints("output_size", 2), places = windows_of(c, w, to);
        SymInt taps = w[0].size * w[1].size;
        runtime_check(self.size(-2) % taps == kZero, c.name())
            << "expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input "
            << to_string(self.sizes()) << " and " << shown("kernel_size", Dims(c.ints("kernel_size", 2)));
        runtime_check(self.size(-1) == places[0] * places[1], c.name())
            << "given output_size=" << to_string(SymSpan(to))
            << ", expected size of input's dimension 2 to match the "
            << "calculated number of sliding blocks " << places[0] << " * " << places[1] << ", but got input "
            << to_string(self.sizes());
        Dims split(self.sizes().first(size_t(self.dim()) - 2));
        for (auto s : {self.size(-2) / taps, w[0].size, w[1].size, places[0], places[1]}) split.push_back(s);
        Tensor x = transpose(reshape(self, split), -3, -2);  // [N, C, kH, H', kW, W']
        x = _overlap_add(x, -2, to[1], w[1].stride, w[1].padding, w[1].dilation);
        return _overlap_add(x, -3, to[0], w[0].stride, w[0].padding, w[0].dilation);
      })
      .samples({"self[2, 12, 9], output_size=[4, 4], kernel_size=[2]",
                "self[4, 6], output_size=[3, 4], kernel_size=[2], padding=[1, 0], stride=[2, 1]"});
}
