// Counting: places in sorted sequences, histograms, membership, distances between points.
#include "facula/catalog/count_helpers.h"
#include "facula/catalog/no_derivative.h"
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
using namespace facula::catalog::count_helpers;

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
}  // namespace

FACULA_FAMILY(count) {
  define("_searchsorted(Tensor sorted_sequence, Tensor values, Tensor? sorter, bool right) -> Tensor")
      .doc("How many elements of its line of sorted_sequence come before each value.")
      .bind(hidden)
      .dtypes(d::real)
      .promote(Promote::none)
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
      .non_differentiable("the results are positions")
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
      .non_differentiable("the results are positions")
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
      .non_differentiable("the results are truth values")
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
      .non_differentiable("the results are truth values")
      .procedure([](const Tensor& element, const Tensor& test, bool, bool invert) {
        return isin(element, test, false, invert);
      })
      .samples({"element=1, test_elements[5]"});
  define("_counts(Tensor self, SymInt minlength) -> Tensor")
      .doc("How often each of 0, 1, ... occurs in a vector of integers; at least minlength of them.")
      .bind(hidden)
      .dtypes(d::integral)
      .result(ResultType::int64)
      .shape([](const Call&) { return Dims{SymInt(sym::kMostSize)}; })
      .checks()
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
  define("nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor")
      .doc(
          "Positions of the first `size` non-zero elements in row-major order, [size, rank]; fill_value where there are no more.")
      .non_differentiable("the results are positions")
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
