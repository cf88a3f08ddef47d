// Pooling over windows.
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
SymInt pooled(SymInt n, const Window& w, int k) {
  SymInt span =
      n + SymInt(2 * w.padding[k] - w.dilation[k] * (w.kernel[k] - 1) - 1 + (w.ceil ? w.stride[k] - 1 : 0));
  SymInt out = span / SymInt(w.stride[k]) + SymInt(int64_t(1));
  if (w.ceil && (out - SymInt(int64_t(1))) * SymInt(w.stride[k]) >= n + SymInt(w.padding[k]))
    out -= SymInt(int64_t(1));
  return out;
}
Dims pooled_sizes(const Call& c, const char* arg = "self") {
  auto sizes = c.sizes(arg);
  index_check(!sizes.empty(), c.name())
      << "expected 3D (unbatched) or 4D (batched) input [N, C, H, W], got shape []";
  bool nothing = false;
  for (size_t k = sizes.size() == 4; k < sizes.size(); ++k) nothing |= sizes[k] == SymInt(int64_t(0));
  runtime_check((sizes.size() == 3 || sizes.size() == 4) && !nothing, c.name())
      << "expected 3D (unbatched) or 4D (batched) input [N, C, H, W], in which only N may be 0, got shape "
      << to_string(sizes);
  Window w = window(c);
  Dims out(sizes);
  for (int k = 0; k < 2; ++k) {
    auto& s = out[sizes.size() - 2 + size_t(k)];
    s = pooled(s, w, k);
    runtime_check(s > SymInt(int64_t(0)), c.name())
        << "given input size " << to_string(sizes)
        << ", the output size is too small: " << to_string(SymSpan(out));
  }
  return out;
}
// Reduction over a window that tells value and tap.
std::vector<Expr> best(const LoopCall& c, const Index& i) {
  Window w = window(c);
  auto sizes = c.sizes("self");
  size_t r = sizes.size() - 2;
  DType t = compute_type(c.dtype("self"));
  Expr lowest = identity(monoid::argmax_pool, t)[0];
  Domain steps = domain(c, Dims{SymInt(w.kernel[0]), SymInt(w.kernel[1])});
  Expr found = reduce(monoid::argmax_pool, steps, [&](const Index& b) {
    Tap y = tap(w, 0, i[r], b[0], sizes[r]), x = tap(w, 1, i[r + 1], b[1], sizes[r + 1]);
    Index j = i;
    j[r] = y.at;
    j[r + 1] = x.at;
    return std::vector<Expr>{select(y.inside & x.inside, c.load("self", j), lowest),
                             cast(steps.position(), tap_type(w))};
  });
  Expr value = part(found, 0), at = part(found, 1);
  // The first element of the window that is not padding, for windows in which nothing exceeds the padding.
  if (w.padding[0] || w.padding[1]) {
    auto first = [&](int k) {
      Expr before = Scalar(w.padding[k]) - i[r + size_t(k)] * Scalar(w.stride[k]);
      return floordiv(max(before, Scalar(int64_t(0))) + Scalar(w.dilation[k] - 1), Scalar(w.dilation[k]));
    };
    at = select(eq(value, lowest), cast(first(0) * Scalar(w.kernel[1]) + first(1), tap_type(w)), at);
  }
  return {value, at};
}
}  // namespace

FACULA_FAMILY(pool) {
  define(
      "max_pool2d_taps(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) "
      "-> (Tensor output, Tensor taps)")
      .doc("Largest value of each window, and the number of its element in the window, counted row by row.")
      .grad_name("MaxPool2DWithIndices")
      .bind(hidden)
      .dtypes(d::integral | d::floating)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), tap_type(window(c))}; })
      .shapes([](const Call& c) {
        Dims s = pooled_sizes(c);
        return std::vector<Dims>{s, s};
      })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) { return best(c, i); })
      // By the taps; derived, it looks for the maxima anew.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        return grads(max_pool2d_backward(v.grad(0), v.result(1), c.sizes("self"), c.ints("kernel_size"),
                                         c.ints("stride"), c.ints("padding"), c.ints("dilation"),
                                         c.flag("ceil_mode")));
      })
      .samples(pool_samples());
  define(
      "avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor")
      .python(
          "avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, *, out=None)")
      .doc("Mean of each window [..., H, W].")
      .grad_name("AvgPool2D")
      .bind(nn_functional)
      .dtypes(d::integral | d::floating)
      .shape([](const Call& c) {
        runtime_check(!c.has("divisor_override") || c.integer("divisor_override") != SymInt(int64_t(0)),
                      "avg_pool2d")
            << "divisor must be not zero";
        return pooled_sizes(c);
      })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        Window w = window(c);
        auto sizes = c.sizes("self");
        size_t r = sizes.size() - 2;
        Expr total = reduce(c, monoid::sum, {SymInt(w.kernel[0]), SymInt(w.kernel[1])}, [&](Index b) {
          Tap y = tap(w, 0, i[r], b[0], sizes[r]), x = tap(w, 1, i[r + 1], b[1], sizes[r + 1]);
          Index j = i;
          j[r] = y.at;
          j[r + 1] = x.at;
          Expr value = c.load("self", j);
          return select(y.inside & x.inside, value, constant(0.0, value.dtype()));
        });
        auto over = [&](Expr count) {
          return is_integral(total.dtype()) ? truncdiv(total, loop::divisor(count)) : total / count;
        };
        if (c.has("divisor_override"))
          return over(constant(Scalar(c.integer("divisor_override").guard_int()), total.dtype()));
        auto extent = [&](int k) {  // elements of the window along dimension k that count
          Expr start = i[r + size_t(k)] * Scalar(w.stride[k]) - Scalar(w.padding[k]),
               n = loop::size(sizes[r + size_t(k)]);
          Expr end = min(start + Scalar(w.kernel[k]), n + Scalar(w.padding[k]));
          if (c.flag("count_include_pad")) return end - start;
          return min(end, n) - max(start, Scalar(int64_t(0)));
        };
        return over(cast(extent(0) * extent(1), total.dtype()));
      })
      // Gathers; derived, windows scatter: 2 to 8 times the time.
      .transposed_by("avg_pool2d_backward")
      .samples(
          {"self[2, 3, 6, 7], kernel_size=[2]", "self[1, 1, 6, 5], kernel_size=[3], stride=[2], padding=[1]",
           "self[2, 3, 6, 7], kernel_size=[3], stride=[2], padding=[1], ceil_mode=True, count_include_pad=False",
           "self[1, 4, 4], kernel_size=[2], divisor_override=3"});
  define(
      "avg_pool2d_backward(Tensor grad, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor")
      .doc("Each gradient spread over its window.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .format_of({"grad"})
      .loop([](const LoopCall& c, Index i) {
        Window w = window(c);
        auto sizes = c.ints("size");
        size_t r = i.size() - 2;
        return over_windows(c, w, i, r, c.sizes("grad"), [&](const Cover& y, const Cover& x) {
          Index j = i;
          j[r] = y.window;
          j[r + 1] = x.window;
          Expr g = c.load("grad", j);
          Expr count;
          if (c.has("divisor_override")) {
            count = constant(double(c.integer("divisor_override").guard_int()), g.dtype());
          } else {
            auto extent = [&](int k, Expr o) {
              Expr start = o * Scalar(w.stride[k]) - Scalar(w.padding[k]),
                   n = loop::size(sizes[r + size_t(k)]);
              Expr end = min(start + Scalar(w.kernel[k]), n + Scalar(w.padding[k]));
              return c.flag("count_include_pad") ? end - start : min(end, n) - max(start, Scalar(int64_t(0)));
            };
            count = cast(extent(0, y.window) * extent(1, x.window), g.dtype());
          }
          return select(x.valid, g / count, constant(0.0, g.dtype()));
        });
      })
      .samples(
          {"grad[1, 1, 2, 2], size=[1, 1, 4, 4], kernel_size=[2], stride=[2], padding=[0], ceil_mode=False, count_include_pad=True, divisor_override=None"});
}
