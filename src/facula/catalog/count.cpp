// Counting: places in sorted sequences, histograms, membership, distances between points.
#include <cmath>
#include <limits>

#include "facula/catalog/no_derivative.h"
#include "facula/loop/number.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/parse.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

void check_sequence(const char* name, const Tensor& sequence, const Tensor& values) {
  runtime_check(sequence.dim() > 0, name)
      << "boundaries tensor should have positive dimension, but got a 0-d tensor";
  bool fits = sequence.dim() == 1 || sequence.dim() == values.dim();
  for (int k = 0; fits && sequence.dim() > 1 && k + 1 < values.dim(); ++k)
    fits = sequence.size(k) == values.size(k);
  runtime_check(fits, name)
      << "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and "
         "input value tensor must match: "
      << to_string(sequence.sizes()) << " and " << to_string(values.sizes());
}

Tensor places(const char* name, const Tensor& sequence, const Tensor& values, std::optional<Tensor> sorter,
              bool right, bool narrow) {
  check_sequence(name, sequence, values);
  Promotion p;
  p.add(sequence);
  p.add(values);
  DType t = p.result();
  supported_check(!is_complex(t), name) << "not implemented for '" << t << "'";
  Tensor found = _searchsorted(to_dtype(detach(sequence), t), to_dtype(detach(values), t),
                               sorter ? MaybeTensor(*sorter) : MaybeTensor(), right);
  return narrow ? to_dtype(found, DType::Int32) : found;
}

// ---- histograms
double largest_of(DType t) {
  return t == DType::Float64 ? std::numeric_limits<double>::max() : t == DType::Float16 ? 65504 : 0x1.fep127;
}
struct Range {
  double low, high;
};
Range range_of(const char* name, const Tensor& x, double low, double high) {
  if (low == high && x.numel() != SymInt(int64_t(0)))
    low = amin(x).item().to_double(), high = amax(x).item().to_double();
  runtime_check(std::isfinite(low) && std::isfinite(high), name)
      << "range of [" << low << ", " << high << "] is not finite";
  return {low, high};
}
// Sums of the weights (or of ones) by bin; elements in bin number `bins` are dropped.
Tensor binned(const Tensor& at, std::optional<Tensor> weight, const SymInt& bins, DType t) {
  Tensor each = weight ? reshape(facula::to(*weight, t), Sizes{at.numel()})
                       : expand(full(Dims{}, 1, t), Sizes{at.numel()});
  return narrow(index_add(zeros(Sizes{bins + SymInt(int64_t(1))}, t), 0, at, each), 0, int64_t(0), bins);
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
std::vector<Range> ranges(const char* name, const std::optional<std::vector<double>>& given, size_t dims) {
  if (!given) return {};
  runtime_check(given->size() == 2 * dims, name)
      << "for a " << dims << "-dimensional histogram range should have " << 2 * dims << " elements, but got "
      << given->size();
  std::vector<Range> out;
  for (size_t k = 0; k < dims; ++k) out.push_back({(*given)[2 * k], (*given)[2 * k + 1]});
  return out;
}

}  // namespace

FACULA_FAMILY(count) {
  define("_searchsorted(Tensor sorted_sequence, Tensor values, Tensor? sorter, bool right) -> Tensor")
      .doc("How many elements of its line of sorted_sequence come before each value.")
      .bind(hidden)
      .dtypes(d::real)
      .promote(Promote::none)
      .non_differentiable()
      .result(ResultType::int64)
      .shape([](const Call& c) { return Dims(c.sizes("values")); })
      .library("searchsorted")
      .batched([](const Batched& b) {  // lines that the values share one by one have a batch in front already
        auto& c = b.logical();
        bool lines = c.rank("sorted_sequence") == c.rank("values");
        if (!lines && (c.rank("sorted_sequence") > 1 || b.is_batched("sorted_sequence") || c.has("sorter")))
          return Results();
        if (lines) return batched_in_front(b);
        return Results(_searchsorted(b["sorted_sequence"], b["values"], MaybeTensor(), c.flag("right")));
      })
      .reference([](const LoopCall& c, Index i) {
        SymInt n = c.size("sorted_sequence", -1);
        return reduce(c, monoid::sum, {n}, [&](Index k) {
          Index at = k, line(i.begin(), i.end() - (i.empty() ? 0 : 1));
          if (c.rank("sorted_sequence") > 1) at = line, at.push_back(k[0]);
          if (c.has("sorter")) at.back() = within(c.load("sorter", at), loop::size(n));
          Expr x = c.load("sorted_sequence", at), value = c.load("values", i);
          if (x.dtype() == DType::Bool) x = cast(x, DType::Int64), value = cast(value, DType::Int64);
          return cast(bit_not(c.flag("right") ? x > value : x >= value), DType::Int64);
        });
      })
      .samples({"sorted_sequence[1], values[3, 4], sorter=None, right=False",  // in order
                "sorted_sequence[3, 1], values[3, 4], sorter=None, right=True"});
  define(
      "searchsorted(Tensor sorted_sequence, Tensor|Scalar self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor")
      .also("self", "input")
      .doc(
          "The index before which each value fits into its line of sorted_sequence: of equal elements the first, or behind the last if `right`.")
      .bind(function)
      .non_differentiable()
      .procedure([](const Tensor& sequence, const Tensor& self, bool narrow, bool right,
                    std::optional<std::string> side, std::optional<Tensor> sorter) {
        runtime_check(!side || *side == "left" || *side == "right", "searchsorted")
            << "side can only be 'left' or 'right' but got " << side.value_or("");
        runtime_check(!side || !right || *side == "right", "searchsorted")
            << "side and right can't be set to opposites, got side of left while right was True";
        if (sorter) {
          bool alike =
              sorter->dim() == sequence.dim() && std::ranges::equal(sorter->sizes(), sequence.sizes());
          runtime_check(alike, "searchsorted")
              << "boundary and sorter must have the same size, but got boundary tensor "
              << to_string(sequence.sizes()) << " and sorter " << to_string(sorter->sizes());
          runtime_check(sorter->dtype() == DType::Int64, "searchsorted")
              << "sorter must be a tensor of long dtype but got " << sorter->dtype();
          if (sorter->numel() != SymInt(int64_t(0))) {
            int64_t low = amin(*sorter).item().to_int(), high = amax(*sorter).item().to_int();
            runtime_check(low >= 0 && SymInt(high) < sequence.size(-1), "searchsorted")
                << "sorter index out of range";
          }
        }
        return places("searchsorted", sequence, self, sorter, right || side == "right", narrow);
      })
      .samples({"sorted_sequence[5], self[3, 4]", "sorted_sequence[3, 5], self[3, 4], right=True",
                "sorted_sequence[5], self[0]"});
  define(
      "bucketize(Tensor|Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor")
      .doc(
          "The index of the bucket between boundaries that each element lies in; one at a boundary in the lower one, or the upper if `right`.")
      .non_differentiable()
      .procedure([](const Tensor& self, const Tensor& boundaries, bool narrow, bool right) {
        runtime_check(boundaries.dim() == 1, "bucketize")
            << "boundaries tensor must be 1 dimension, but got shape " << to_string(boundaries.sizes());
        return places("bucketize", boundaries, self, std::nullopt, right, narrow);
      })
      .samples({"self[3, 4], boundaries[5]", "self[], boundaries[0]"});
  define(
      "isin(Tensor elements, Tensor|Scalar test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor")
      .also("test_elements", "test_element")
      .doc("Which elements are among test_elements, or are not if `invert`.")
      .bind(function)
      .non_differentiable()
      .procedure([](const Tensor& elements, const Tensor& test, bool, bool invert) {
        Promotion p;
        p.add(elements);
        p.add(test);
        for (const Tensor& t : {elements, test})
          runtime_check(!is_complex(t.dtype()) && t.dtype() != DType::Bool, "isin")
              << "unsupported input type: " << t.dtype();
        Tensor x = to_dtype(elements, p.result()),
               all = reshape(to_dtype(test, p.result()), Sizes{test.numel()});
        int64_t n = test.numel().guard_int();
        Tensor found;
        if (n <= 32) {
          found = any(eq(unsqueeze(x, -1), all), Sizes{int64_t(-1)});
        } else {
          all = std::get<0>(sort(all));
          Tensor at = clamp(_searchsorted(all, x, MaybeTensor(), false), Scalar(int64_t(0)), Scalar(n - 1));
          found = eq(view(index_select(all, 0, reshape(at, Sizes{at.numel()})), at.sizes()), x);
        }
        return invert ? logical_not(found) : found;
      })
      .samples({"elements[3, 4], test_elements[5]", "elements[3], test_elements[40], invert=True",
                "elements[3], test_elements[0]"});
  define(
      "isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor")
      .also("element", "elements")
      .doc("Is the number among test_elements?")
      .bind(function)
      .non_differentiable()
      .procedure([](const Tensor& element, const Tensor& test, bool, bool invert) {
        return isin(element, test, false, invert);
      })
      .samples({"element=1, test_elements[5]"});

  define("_even_bins(Tensor self, Tensor edges, Scalar low, Scalar per_length) -> Tensor")
      .doc(
          "The bin of each element between rising edges, the last of which belongs to the last bin; one more for what lies outside. (self - low) * per_length is less than one bin off.")
      .bind(hidden)
      .dtypes(d::floating)
      .non_differentiable()
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
  define("_counts(Tensor self, SymInt minlength) -> Tensor")
      .doc("How often each of 0, 1, ... occurs in a vector of integers; at least minlength of them.")
      .bind(hidden)
      .dtypes(d::integral)
      .non_differentiable()
      .result(ResultType::int64)
      .shape([](const Call&) { return Dims{SymInt(sym::kMostSize)}; })
      .data_dependent("counts")
      .reference([](const Tensor& self, const SymInt& minlength) {
        SymInt size = minlength;
        if (self.numel() != SymInt(int64_t(0))) {
          auto [least, most] = aminmax(self);
          runtime_check(least.item().to_int() >= 0, "bincount")
              << "only supports 1-d non-negative integral inputs, got " << least.item();
          size = max(size, SymInt(most.item().to_int() + 1));
        }
        return contiguous(binned(facula::to(self, DType::Int64), std::nullopt, size, DType::Int64));
      })
      .samples({"self<5>[7], minlength=0", "self<3>[4], minlength=6", "self<2>[0], minlength=2"});
  define("bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor")
      .doc(
          "How often each of 0, 1, ... occurs in a vector of integers, or the sums of the weights there; at least minlength of them.")
      .reads_data()
      .procedure([](const Tensor& self, std::optional<Tensor> weights, SymInt minlength) {
        runtime_check(!(minlength < SymInt(int64_t(0))), "bincount")
            << "minlength should be >= 0, got " << minlength;
        bool none = self.dim() == 1 && self.numel() == SymInt(int64_t(0));
        auto wrong = [&] {
          return "only supports 1-d non-negative integral inputs, got shape " + to_string(self.sizes()) +
                 " and dtype " + name(self.dtype());
        };
        runtime_check(self.dim() == 1, "bincount") << wrong();
        supported_check(is_integral(self.dtype()) && !is_limited(self.dtype()), "bincount") << wrong();
        if (none) return zeros(Sizes{minlength}, DType::Int64);
        if (!weights) return _counts(self, minlength);
        SymInt count;
        if (self.is_traced()) {  // a kernel says which of them is negative
          count = _repeated_positions(view(add(to_dtype(amax(self), DType::Int64), 1), Sizes{int64_t(1)}))
                      .size(0);
        } else {
          auto [least, most] = aminmax(self);
          runtime_check(least.item().to_int() >= 0, "bincount")
              << "only supports 1-d non-negative integral inputs, got " << least.item();
          count = most.item().to_int() + 1;
        }
        runtime_check(weights->dim() == 1 && weights->size(0) == self.size(0), "bincount")
            << "weights should be 1-d and have the same length as input: " << to_string(self.sizes())
            << " and " << to_string(weights->sizes());
        DType t = weights->dtype() == DType::Float32 ? DType::Float32 : DType::Float64;
        return contiguous(binned(facula::to(self, DType::Int64), *weights, max(minlength, count), t));
      })
      .samples({"self<5>[7]", "self<3>[4], minlength=6", "self<5>[7], weights[7]"});
  define("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor")
      .doc(
          "How many elements lie in each of `bins` equal parts from min to max (of the elements where both are equal).")
      .dtypes(d::floating)
      .strict()
      .non_differentiable()
      .undifferenced(kCounts)
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
      .non_differentiable()
      .undifferenced("PyTorch marks the edges as not differentiable")
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
  define("nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor")
      .doc(
          "Positions of the first `size` non-zero elements in row-major order, [size, rank]; fill_value where there are no more.")
      .non_differentiable()
      .reads_data()
      .procedure([](const Tensor& self, SymInt size, int64_t fill_value) {
        runtime_check(!(size < SymInt(int64_t(0))), "nonzero_static")
            << "size must be a non-negative integer, got " << size;
        Tensor all = nonzero(self);
        SymInt kept = min(size, all.size(0));
        return constant_pad_nd(narrow(all, 0, int64_t(0), kept),
                               Sizes{int64_t(0), int64_t(0), int64_t(0), size - kept}, Scalar(fill_value));
      })
      .samples({"self[3, 4], size=5", "self[2], size=4, fill_value=7"});
}
