// Histograms.
#include <cmath>
#include <limits>

#include "facula/catalog/count_helpers.h"
#include "facula/catalog/no_derivative.h"
#include "facula/loop/number.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::count_helpers;

namespace {
// ---- histograms
double largest_of(DType t) {
  return t == DType::Float64 ? std::numeric_limits<double>::max() : t == DType::Float16 ? 65504 : 0x1.fep127;
}
Range range_of(const char* name, const Tensor& x, double low, double high) {
  if (low == high && x.numel() != SymInt(int64_t(0)))
    low = amin(x).item().to_double(), high = amax(x).item().to_double();
  runtime_check(std::isfinite(low) && std::isfinite(high), name)
      << "range of [" << low << ", " << high << "] is not finite";
  return {low, high};
}
// The number of elements in each bin, counted exactly and then rounded to `t`.
Tensor counted(const Tensor& at, const SymInt& bins, DType t) {
  if (at.is_traced() || at.device() != Device{}) return binned(at, std::nullopt, bins, t);
  return to_dtype(narrow(_counts(at, bins + SymInt(int64_t(1))), 0, int64_t(0), bins), t);
}
// Whether even edges are so far apart that rounding moves neither an edge nor an element's computed position by half a bin. Then
// an element is in the bin at its computed position, or in a neighbour of it.
bool are_apart(const Range& r, int64_t bins, DType t) {
  if (t != DType::Float32 && t != DType::Float64) return false;
  double all = r.high - r.low, largest = std::max(std::abs(r.low), std::abs(r.high));
  double epsilon =
      t == DType::Float32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  return bins <= 1 << 20 && all > 1e-30 && all < 1e30 && all / double(bins) > 64 * epsilon * largest;
}
// The bin of each element between edges; those outside, and NaN, are in one more. `even`: where they begin and end, if
// they are even.
Tensor bin_between(const Tensor& x, const Tensor& edges, const std::optional<Range>& even = {}) {
  SymInt bins = edges.size(0) - SymInt(int64_t(1));
  if (even && are_apart(*even, bins.guard_int(), x.dtype()))
    return _even_bins(x, edges, even->low, double(bins.guard_int()) / (even->high - even->low));
  // The last edge belongs to the last bin: only those between bins tell them apart.
  Tensor between = narrow(edges, 0, int64_t(1), max(bins - SymInt(int64_t(1)), SymInt(int64_t(0))));
  Tensor at = _searchsorted(between, x, MaybeTensor(), true);
  Tensor inside =
      logical_and(ge(x, narrow(edges, 0, int64_t(0), int64_t(1))), le(x, narrow(edges, 0, bins, int64_t(1))));
  return where(inside, at, full(Dims{}, Scalar(bins.guard_int()), DType::Int64));
}
void check_weight(const char* name, const Tensor& x, const std::optional<Tensor>& weight) {
  if (!weight) return;
  runtime_check(weight->dtype() == x.dtype(), name)
      << "if weight tensor is provided, input tensor and weight tensor should have the same dtype, got "
      << x.dtype() << " and " << weight->dtype();
}
Tensor as_density(const Tensor& hist, const std::vector<Tensor>& edges) {
  Tensor y = div(hist, sum(hist));
  for (size_t k = 0; k < edges.size(); ++k) {
    Dims shape(edges.size(), SymInt(int64_t(1)));
    shape[k] = edges[k].size(0) - SymInt(int64_t(1));
    Tensor width = sub(narrow(edges[k], 0, int64_t(1), shape[k]), narrow(edges[k], 0, int64_t(0), shape[k]));
    y = div(y, view(width, shape));
  }
  return y;
}
// Elements [count, dims] over the grid of edges of each dimension, without a derivative by either.
constexpr const char* kCounts =
    "PyTorch marks the result as not differentiable: counts do not change with the elements";
Tensor histogram_of(const Tensor& points, const std::vector<Tensor>& edges,
                    const std::optional<Tensor>& weight, bool density,
                    const std::optional<Range>& even = {}) {
  Dims sizes;
  SymInt cells = int64_t(1);
  for (auto& e : edges) {
    sizes.push_back(e.size(0) - SymInt(int64_t(1)));
    cells *= sizes.back();
  }
  Tensor at, outside;
  for (size_t k = 0; k < edges.size(); ++k) {
    Tensor bin = bin_between(contiguous(select(points, 1, int64_t(k))), edges[k], even);
    at = at.defined() ? add(mul(at, sizes[k]), bin) : bin;
    if (edges.size() == 1) break;  // what is outside is in its place already
    Tensor beyond = ge(bin, sizes[k]);
    outside = outside.defined() ? logical_or(outside, beyond) : beyond;
  }
  if (outside.defined()) at = where(outside, full(Dims{}, Scalar(cells.guard_int()), DType::Int64), at);
  DType t = points.dtype();
  Tensor hist = view(weight ? binned(at, weight, cells, t) : counted(at, cells, t), sizes);
  return density ? as_density(hist, edges) : hist;
}
std::tuple<Tensor, Tensor> without_derivatives(const Tensor& hist, const Tensor& edges,
                                               const std::vector<Tensor>& operands) {
  return {catalog::without_derivative(hist, operands, "aten::histogram"),
          catalog::without_derivative(edges, operands, "aten::histogram")};
}
Range even_range(const char* name, const Tensor& x, std::optional<Range> given, int64_t bins) {
  runtime_check(bins > 0, name) << "bins must be > 0, but got " << bins;
  Range r{0, 1};
  if (given) r = *given;
  else if (x.numel() != SymInt(int64_t(0))) {
    auto [least, most] = aminmax(x);
    r = {least.item().to_double(), most.item().to_double()};
  }
  runtime_check(std::isfinite(r.low) && std::isfinite(r.high), name)
      << "range [" << r.low << ", " << r.high << "] is not finite";
  runtime_check(r.low <= r.high, name)
      << "min should not exceed max, but got min " << r.low << " max " << r.high;
  if (r.low == r.high) r = {loop::rounded(r.low - 0.5, x.dtype()), loop::rounded(r.high + 0.5, x.dtype())};
  return r;
}
Tensor even_edges(const Range& r, int64_t bins, DType t) {
  return linspace(Scalar(r.low), Scalar(r.high), SymInt(bins + 1), t);
}
}  // namespace

FACULA_FAMILY(histogram) {
  define("_even_bins(Tensor self, Tensor edges, Scalar low, Scalar per_length) -> Tensor")
      .doc(
          "The bin of each element between rising edges, the last of which belongs to the last bin; one more for what lies outside. (self - low) * per_length is less than one bin off.")
      .bind(hidden)
      .dtypes(d::floating)
      .non_differentiable("the results are positions")
      .result([](const Call&) { return std::vector<DType>{DType::Int32}; })
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) {
        Expr x = c.load("self", i), last = size(c.size("edges", 0) - SymInt(int64_t(2)));
        DType t = x.dtype();
        Expr place = (x - c.scalar("low", t)) * c.scalar("per_length", t);
        Expr guess = max(cast(min(max(place, 0.0), cast(last, t)), DType::Int64), int64_t(0));  // of NaN too
        auto edge = [&](Expr k) { return c.load("edges", {k}); };
        Expr one = constant(Scalar(int64_t(1)), DType::Int64),
             none = constant(Scalar(int64_t(0)), DType::Int64);
        Expr above = select((x >= edge(guess + one)) & (guess < last), one, none);
        Expr bin = guess + above - select(x < edge(guess), one, none);
        Expr inside = (x >= edge(none)) & (x <= edge(last + one));
        return cast(select(inside, bin, last + one), DType::Int32);
      })
      .samples({"self[20], edges[4], low=-1, per_length=1.5"});
  define("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor")
      .doc(
          "How many elements lie in each of `bins` equal parts from min to max (of the elements where both are equal).")
      .dtypes(d::floating)
      .strict()
      .non_differentiable(kCounts)
      .reads_data()
      .procedure([](const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
        runtime_check(bins > 0, "histc") << "bins must be > 0, got " << bins;
        runtime_check(min.category() != Category::complex && max.category() != Category::complex, "histc")
            << "min and max must be real";
        Tensor x = reshape(detach(self), Sizes{self.numel()});
        Range r = range_of("histc", x, min.to_double(), max.to_double());
        runtime_check(r.low <= r.high, "histc")
            << "max must be larger than min, got " << r.low << " and " << r.high;
        if (r.low == r.high) r.low -= 1, r.high += 1;
        // Scale everything down first if the range times the number of bins would overflow.
        double shrink = std::ldexp(1.0, -2 - std::ilogb(double(bins) * 2)), largest = largest_of(x.dtype());
        if ((r.high * shrink - r.low * shrink) * double(bins) < largest * shrink) shrink = 1;
        else x = mul(x, shrink), r.low *= shrink, r.high *= shrink;
        Tensor low = full(Dims{}, r.low, x.dtype()), high = full(Dims{}, r.high, x.dtype());
        DType i = bins < 1 << 30 ? DType::Int32 : DType::Int64;
        Tensor count = full(Dims{}, Scalar(bins), x.dtype()), last = full(Dims{}, Scalar(bins - 1), i),
               none = full(Dims{}, Scalar(bins), i);
        Tensor at = div(mul(sub(x, low), count), sub(high, low));
        at = where(lt(at, count), to_dtype(at, i), last);  // the end of the range too
        at = where(logical_and(ge(x, low), le(x, high)), at, none);
        return contiguous(counted(at, bins, x.dtype()));
      })
      .samples({"self[20], bins=4", "self[20], bins=4, min=-1, max=1", "self[0], bins=3"});
  define(
      "histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)")
      .doc(
          "How many elements, or which weight of them, lie between rising edges; divided by total and width if `density`.")
      .dtypes(d::floating)
      .strict()
      .procedure([](const Tensor& self, const Tensor& bins, std::optional<Tensor> weight, bool density) {
        runtime_check(bins.dim() == 1 && bins.size(0) > SymInt(int64_t(0)), "histogram")
            << "bins tensor should have one dimension and at least one element, but got shape "
            << to_string(bins.sizes());
        runtime_check(bins.dtype() == self.dtype(), "histogram")
            << "expected bins tensor to have dtype " << self.dtype() << ", got " << bins.dtype();
        check_weight("histogram", self, weight);
        Tensor edges = contiguous(detach(bins));
        Tensor hist =
            histogram_of(reshape(detach(self), Sizes{self.numel(), int64_t(1)}), {edges}, weight, density);
        return without_derivatives(hist, edges, {self, bins});
      })
      .samples({"self[20], bins[4]"});
  define(
      "histogram(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)")
      .doc("The same over `bins` equal parts of `range`, by default that of the elements.")
      .dtypes(d::floating)
      .strict()
      .reads_data()
      .procedure([](const Tensor& self, int64_t bins, std::optional<std::vector<double>> range,
                    std::optional<Tensor> weight, bool density) {
        check_weight("histogram", self, weight);
        auto given = ranges("histogram", range, 1);
        Range even =
            even_range("histogram", self, given.empty() ? std::nullopt : std::optional(given[0]), bins);
        Tensor edges = even_edges(even, bins, self.dtype());
        Tensor hist = histogram_of(reshape(detach(self), Sizes{self.numel(), int64_t(1)}), {edges}, weight,
                                   density, even);
        return without_derivatives(hist, edges, {self});
      })
      .samples({"self[20], bins=4", "self[20], bins=3, range=[-1.0, 1.0], density=True"});
  define("_histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None) -> Tensor[]")
      .doc("The edges of equal parts along each of the dimensions of points, [*, dimensions].")
      .bind(hidden)
      .called("histogramdd")
      .dtypes(d::floating)
      .strict()
      .non_differentiable("PyTorch marks the edges as not differentiable")
      .reads_data()
      .procedure([](const Tensor& self, SymSpan bins, std::optional<std::vector<double>> range) {
        runtime_check(self.dim() >= 2, "histogramdd")
            << "input tensor should have at least 2 dimensions, but got shape " << to_string(self.sizes());
        runtime_check(SymInt(int64_t(bins.size())) == self.size(-1), "histogramdd")
            << "expected as many sizes of bins as the last dimension of input has elements, " << self.size(-1)
            << ", got " << bins.size();
        auto given = ranges("histogramdd", range, bins.size());
        std::vector<Tensor> out;
        for (size_t k = 0; k < bins.size(); ++k) {
          int64_t count = bins[k].guard_int();
          Range even = even_range("histogramdd", select(detach(self), -1, int64_t(k)),
                                  given.empty() ? std::nullopt : std::optional(given[k]), count);
          out.push_back(even_edges(even, count, self.dtype()));
        }
        return out;
      })
      .samples({"self[20, 2], bins=[3, 4]"});
  define("_histogramdd(Tensor self, Tensor[] bins, *, Tensor? weight=None, bool density=False) -> Tensor")
      .doc("How many points, [*, dimensions], lie in each cell of the grid of these edges.")
      .bind(hidden)
      .called("histogramdd")
      .dtypes(d::floating)
      .strict()
      .procedure([](const Tensor& self, const std::vector<Tensor>& bins, std::optional<Tensor> weight,
                    bool density) {
        runtime_check(self.dim() >= 2, "histogramdd")
            << "input tensor should have at least 2 dimensions, but got shape " << to_string(self.sizes());
        runtime_check(SymInt(int64_t(bins.size())) == self.size(-1), "histogramdd")
            << "expected as many sequences of bins as the last dimension of input has elements, "
            << self.size(-1) << ", got " << bins.size();
        check_weight("histogramdd", self, weight);
        std::vector<Tensor> edges;
        for (auto& t : bins) {
          runtime_check(t.dim() == 1 && t.dtype() == self.dtype() && t.size(0) > SymInt(int64_t(0)),
                        "histogramdd")
              << "each of the bins should be a vector of " << self.dtype() << ", got " << t.dtype()
              << " of shape " << to_string(t.sizes());
          edges.push_back(contiguous(detach(t)));
        }
        Tensor hist =
            histogram_of(reshape(detach(self), Sizes{int64_t(-1), self.size(-1)}), edges, weight, density);
        std::vector<Tensor> operands = bins;
        operands.push_back(self);
        return catalog::without_derivative(hist, operands, "aten::_histogramdd_from_bin_cts");
      })
      .samples({"self[20, 2], bins{[3], [4]}"});
}
