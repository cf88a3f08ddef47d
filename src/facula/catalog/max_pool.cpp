// Largest elements of windows.
#include "facula/catalog/pool_helpers.h"
#include "facula/loop/monoid.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::pool_helpers;

namespace {
// The gradient of max_pool2d by elements: of the windows that hold one, those whose tap it is.
Expr gathered(const LoopCall& c, Index i) {
  Window w = window(c);
  return over_windows(c, w, i, i.size() - 2, c.sizes("grad"), [&](const Cover& y, const Cover& x) {
    Index j = i;
    j[i.size() - 2] = y.window;
    j[i.size() - 1] = x.window;
    Expr g = c.load("grad", j), tap = c.load("taps", j);
    auto as_tap = [&](Expr e) { return cast(e, tap.dtype()); };
    Expr own = as_tap(y.step * Scalar(w.kernel[1])) + as_tap(x.step);
    return select(x.valid & eq(tap, own), g, constant(0.0, g.dtype()));
  });
}
// The same by windows, whose gradients are added at their taps: planes are vectors of H * W elements.
Definition scattered(const LoopCall& c) {
  Window w = window(c);
  auto sizes = c.ints("size");
  size_t r = sizes.size() - 2;
  Definition def;
  def.rank = int(r) + 1;
  Scatter s;
  s.domain = Dims(c.sizes("taps"));
  Index i;
  for (size_t k = 0; k < s.domain.size(); ++k) i.push_back(loop::index(int(k)));
  Expr tap = c.load("taps", i), width = loop::size(sizes[r + 1]);
  s.value = c.load("grad", i);
  auto start = [&](int k) { return i[r + size_t(k)] * Scalar(w.stride[k]) - Scalar(w.padding[k]); };
  // Below 256 a tap by the kernel's width is a product and a shift.
  Expr row;
  if (w.kernel[1] == 1) row = cast(tap, DType::Int64);
  else if (tap_type(w) == DType::Int64) row = floordiv(tap, Scalar(w.kernel[1]));
  else
    row = shr(cast(tap, DType::Int64) * Scalar((65536 + w.kernel[1] - 1) / w.kernel[1]), Scalar(int64_t(16)));
  Expr step = cast(tap, DType::Int64) * Scalar(w.dilation[1]) +
              row * (width * Scalar(w.dilation[0]) - Scalar(w.kernel[1] * w.dilation[1]));
  Expr at = start(0) * width + start(1) + step;
  s.target = i;
  s.target.resize(r + 1);
  s.target[r] = within(at, width * loop::size(sizes[r]));
  def.scatter = s;
  return def;
}
}  // namespace

FACULA_FAMILY(max_pool) {
  define(
      "max_pool2d_positions(Tensor taps, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc("Where each tap lies in the H x W plane of an input of that size.")
      .bind(hidden)
      .dtypes(d::integral)
      .result(ResultType::int64)
      .shape([](const Call& c) { return Dims(c.sizes("taps")); })
      .format_of({"taps"})
      .loop([](const LoopCall& c, Index i) {
        Window w = window(c);
        size_t r = i.size() - 2;
        Expr tap = c.load("taps", i);
        if (tap_type(w) != DType::Int64) tap = cast(tap, DType::Int32);  // whose division is quick
        auto at = [&](int k) {
          return i[r + size_t(k)] * Scalar(w.stride[k]) +
                 cast(step(w, k, tap), DType::Int64) * Scalar(w.dilation[k]) - Scalar(w.padding[k]);
        };
        return at(0) * loop::size(c.ints("size")[r + 1]) + at(1);
      })
      .samples(
          {"taps<4>[2, 3, 1, 2], size=[2, 3, 2, 4], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "max_pool2d_backward(Tensor grad, Tensor taps, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc("Each gradient at the element of its window that was the largest.")
      .dtypes(d::floating)
      .bind(hidden)
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .format_of({"grad", "taps"})
      .channels_last(ChannelsLast::reads)
      .checks()
      .library("max_pool2d_backward")
      .batched([](const Batched& b) {  // it joins the first dimension
        auto& c = b.logical();
        auto joined = [&](const char* arg) {
          Tensor t = b.whole(arg);
          Dims sizes{t.size(0) * (c.rank(arg) == 4 ? t.size(1) : SymInt(int64_t(1)))};
          for (int d = c.rank(arg) == 4 ? 2 : 1; d < t.dim(); ++d) sizes.push_back(t.size(d));
          return reshape(t, sizes);
        };
        Dims one(c.ints("size")), all(one);
        if (all.size() == 4) all[0] *= b.size();
        else all.insert(0, b.size());
        Tensor g =
            max_pool2d_backward(joined("grad"), joined("taps"), all, c.ints("kernel_size"), c.ints("stride"),
                                c.ints("padding"), c.ints("dilation"), c.flag("ceil_mode"));
        one.insert(0, b.size());
        return Results(reshape(g, one));
      })
      .reference(gathered)
      .transposed_by("max_pool2d_pick")
      .samples(
          {"grad[2, 3, 1, 1], taps<4>[2, 3, 1, 1], size=[2, 3, 2, 2], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "_max_pool2d_gather(Tensor grad, Tensor taps, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc("max_pool2d_backward where channels lie side by side: each element asks its windows.")
      .dtypes(d::floating)
      .bind(hidden)
      .non_differentiable("max_pool2d_backward, for which the library calls it, has the gradient")
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .format_of({"grad", "taps"})
      .loop(gathered)
      .samples(
          {"grad[2, 3, 1, 1], taps<4>[2, 3, 1, 1], size=[2, 3, 2, 2], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "_max_pool2d_scatter(Tensor grad, Tensor taps, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc(
          "max_pool2d_backward where rows lie side by side, before it is rounded: each window adds to an element.")
      .dtypes(d::floating)
      .bind(hidden)
      .non_differentiable("max_pool2d_backward, for which the library calls it, has the gradient")
      .result([](const Call& c) { return std::vector<DType>{compute_type(c.dtype("grad"))}; })
      .shape([](const Call& c) {
        auto sizes = c.ints("size");
        size_t r = sizes.size() - 2;
        return with(sizes.first(r + 1), int(r), sizes[r] * sizes[r + 1]);
      })
      .checks()
      .loop(scattered)
      .samples(
          {"grad[2, 3, 1, 1], taps<4>[2, 3, 1, 1], size=[2, 3, 2, 2], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "max_pool2d_pick(Tensor self, Tensor taps, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc("The element of each window that a tap says.")
      .dtypes(d::floating)
      .bind(hidden)
      .shape([](const Call& c) { return Dims(c.sizes("taps")); })
      .format_of({"self", "taps"})
      .loop([](const LoopCall& c, Index i) {
        Window w = window(c);
        auto sizes = c.sizes("self");
        size_t r = i.size() - 2;
        Expr at = cast(c.load("taps", i), DType::Int64);
        Tap y = tap(w, 0, i[r], step(w, 0, at), sizes[r]),
            x = tap(w, 1, i[r + 1], step(w, 1, at), sizes[r + 1]);
        Index j = i;
        j[r] = y.at;
        j[r + 1] = x.at;
        Expr value = c.load("self", j);
        return select(y.inside & x.inside, value, constant(0.0, value.dtype()));
      })
      .samples(
          {"self[2, 3, 2, 2], taps<4>[2, 3, 1, 1], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) "
      "-> (Tensor, Tensor)")
      .python(
          "max_pool2d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window [..., H, W], and its position in the H x W plane.")
      .bind(function)
      .dtypes(d::integral | d::floating)
      .procedure([](const Tensor& self, SymSpan kernel, SymSpan stride, SymSpan padding, SymSpan dilation,
                    bool ceil) {
        auto [output, taps] = max_pool2d_taps(self, kernel, stride, padding, dilation, ceil);
        return std::tuple(output,
                          max_pool2d_positions(taps, self.sizes(), kernel, stride, padding, dilation, ceil));
      })
      .samples(pool_samples());
  define(
      "max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor")
      .python(
          "max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window [..., H, W]; stride defaults to the kernel's size.")
      .bind(function)
      .procedure([](const Tensor& self, SymSpan kernel, SymSpan stride, SymSpan padding, SymSpan dilation,
                    bool ceil) {
        return std::get<0>(max_pool2d_taps(self, kernel, stride, padding, dilation, ceil));
      })
      .samples({"self![2, 3, 6, 7], kernel_size=[2]",
                "self![2, 1, 6, 7], kernel_size=[3], stride=[2], padding=[1], ceil_mode=True",
                "self![1, 2, 4, 4], kernel_size=[2]"});
}
