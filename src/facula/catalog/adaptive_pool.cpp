// Pools whose windows follow from the size of the result.
#include "facula/catalog/selected.h"
#include "facula/loop/monoid.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// ---- pooling to a given size: window o of n over m elements goes from floor(o m / n) to ceil((o + 1) m / n).
// The windows that hold element p are, by the same rule, those from floor(p n / m) to ceil((p + 1) n / m).
struct Span {
  Expr start, end;
  Expr count() const { return end - start; }
};
Span even_window(Expr o, const SymInt& m, const SymInt& n) {
  Expr elements = loop::size(m), windows = max(loop::size(n), Scalar(int64_t(1)));
  Expr next = (o + Scalar(int64_t(1))) * elements + loop::size(n) - Scalar(int64_t(1));
  return {floordiv(o * elements, windows), floordiv(next, windows)};
}
// No window is wider.
SymInt widest(const SymInt& m, const SymInt& n) {
  const SymInt one = int64_t(1);
  return (m + n - one) / max(n, one) + one;
}
Dims with_plane(SymSpan sizes, SymSpan plane) {
  Dims out(sizes);
  for (size_t k = 0; k < 2; ++k) out[out.size() - 2 + k] = plane[k];
  return out;
}
Dims adaptive_sizes(const Call& c) { return with_plane(c.sizes("self"), c.ints("output_size", 2)); }
// Sum over the windows at `i` of the last two dimensions, which lead from `from` sizes to `to` sizes, of
// f(element).
template <class F>
Expr over_even_windows(const LoopCall& c, const Index& i, const SymInt* from, const SymInt* to, F&& f) {
  size_t r = i.size() - 2;
  Span y = even_window(i[r], from[0], to[0]), x = even_window(i[r + 1], from[1], to[1]);
  return reduce(c, monoid::sum, {widest(from[0], to[0]), widest(from[1], to[1])}, [&](Index b) {
    Index j = i;
    j[r] = y.start + b[0];
    j[r + 1] = x.start + b[1];
    Expr inside = (j[r] < y.end) & (j[r + 1] < x.end);
    j[r] = min(j[r], y.end - Scalar(int64_t(1)));
    j[r + 1] = min(j[r + 1], x.end - Scalar(int64_t(1)));
    Expr value = f(j);
    return select(inside, value, constant(0.0, value.dtype()));
  });
}
}  // namespace

FACULA_FAMILY(adaptive_pool) {
  define("_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor")
      .doc("Means of the windows that divide [..., H, W] evenly into `output_size`.")
      .grad_name("AdaptiveAvgPool2D")
      .bind(hidden)
      .dtypes(d::floating)
      .shape(adaptive_sizes)
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        size_t r = i.size() - 2;
        SymSpan from = c.sizes("self").last(2);
        Dims to(c.ints("output_size"));
        Expr total = over_even_windows(c, i, from.data(), to.data(),
                                       [&](const Index& j) { return c.load("self", j); });
        return total /
               cast(even_window(i[r], from[0], to[0]).count() * even_window(i[r + 1], from[1], to[1]).count(),
                    total.dtype());
      })
      // Derived, it takes 1.5 times as long where all is averaged (and a tenth for a few bins).
      .transposed_by("_adaptive_avg_pool2d_backward")
      .samples({"self[2, 3, 5, 7], output_size=[2, 3]", "self[3, 4, 3], output_size=[5, 2]",
                "self[1, 1, 1, 8], output_size=[1, 3]"});
  define("_adaptive_avg_pool2d_backward(Tensor self, SymInt[2] input_size) -> Tensor")
      .doc("Each gradient spread over its window; input_size is H, W of what was pooled.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return with_plane(c.sizes("self"), c.ints("input_size", 2)); })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        size_t r = i.size() - 2;
        SymSpan from = c.sizes("self").last(2);
        Dims to(c.ints("input_size", 2));
        return over_even_windows(c, i, from.data(), to.data(), [&](const Index& j) {
          Expr g = c.load("self", j);
          Expr count =
              even_window(j[r], to[0], from[0]).count() * even_window(j[r + 1], to[1], from[1]).count();
          return g / cast(count, g.dtype());
        });
      })
      .samples({"self[2, 3, 2, 3], input_size=[5, 7]", "self[3, 5, 2], input_size=[4, 3]"});
  define("_adaptive_max_pool2d(Tensor self, SymInt[2] output_size) -> (Tensor output, Tensor indices)")
      .doc(
          "Largest values of the windows that divide [..., H, W] evenly, and their positions in the H x W plane.")
      .grad_name("AdaptiveMaxPool2D")
      .bind(hidden)
      .dtypes(d::integral | d::floating)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int64}; })
      .shapes([](const Call& c) { return std::vector<Dims>(2, adaptive_sizes(c)); })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        size_t r = i.size() - 2;
        SymSpan from = c.sizes("self").last(2);
        Dims to(c.ints("output_size"));
        Span y = even_window(i[r], from[0], to[0]), x = even_window(i[r + 1], from[1], to[1]);
        Domain steps = domain(c, std::vector<SymInt>{widest(from[0], to[0]), widest(from[1], to[1])});
        // Steps beyond a window's end see its last element again.
        Expr found = reduce(monoid::argmax_pool, steps, [&](const Index& b) {
          Index j = i;
          j[r] = min(y.start + b[0], y.end - Scalar(int64_t(1)));
          j[r + 1] = min(x.start + b[1], x.end - Scalar(int64_t(1)));
          return std::vector<Expr>{c.load("self", j), j[r] * loop::size(from[1]) + j[r + 1]};
        });
        return std::vector<Expr>{part(found, 0), part(found, 1)};
      })
      // The first of equals takes the gradient; derived, it looks for the maxima anew: 500 times the time.
      .vjp(catalog::to_places)
      .samples({"self![2, 3, 5, 7], output_size=[2, 3]", "self![3, 4, 3], output_size=[5, 2]"});
}
