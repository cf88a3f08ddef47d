// Order: sorting, and picking by rank. NaN counts as the largest value; equal values keep their order.
#include <limits>

#include "facula/catalog/selected.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

std::vector<DType> with_indices(const Call& c) { return {c.dtype("self"), DType::Int64}; }

// Whether element a at position i precedes element b at position j.
Expr comes_before(Expr a, Expr i, Expr b, Expr j, bool descending) {
  if (a.dtype() == DType::Bool) {
    a = cast(a, DType::Int64);
    b = cast(b, DType::Int64);
  }
  Expr less = descending ? a > b : a < b, equal = eq(a, b);
  if (is_floating(a.dtype())) {
    Expr nan_a = isnan(a), nan_b = isnan(b);
    less = descending ? (nan_a & bit_not(nan_b)) | less : (less | (nan_b & bit_not(nan_a)));
    equal = equal | (nan_a & nan_b);
  }
  return less | (equal & (i < j));
}

// Value and position of the element whose rank along dimension k is `wanted`, or i[k]: every element's rank is counted.
std::vector<Expr> by_rank(const LoopCall& c, Index i, bool descending, Expr wanted = Expr()) {
  if (i.empty()) return {c.load("self", i), integer(0)};
  int k = c.dim("dim");
  SymInt n = c.size("self", k);
  auto at = [&](Expr p) { return c.load("self", with(i, k, p)); };
  auto has_rank = [&](Expr p) {
    Expr rank = reduce(c, monoid::sum, {n}, [&](Index q) {
      return cast(comes_before(at(q[0]), q[0], at(p), p, descending), DType::Int64);
    });
    return eq(rank, wanted ? wanted : i[size_t(k)]);
  };
  Expr place = reduce(c, monoid::sum, {n}, [&](Index p) { return select(has_rank(p[0]), p[0], integer(0)); });
  return {at(check(place, loop::size(n))), place};
}

SymInt chosen(const Call& c) {
  SymInt k = c.integer("k");
  auto sizes = c.sizes("self");
  int d = c.dim("dim");
  SymInt n = sizes.empty() ? SymInt(int64_t(1)) : sizes[size_t(d)];
  runtime_check(sym::may_be_at_most(0, k) && sym::may_be_at_most(k, n), c.name())
      << "selected index k out of range: k = " << k << " for size " << n << " (shape " << to_string(sizes)
      << ")";
  return k;
}

SampleArg unequal(std::vector<int64_t> sizes) { return distinct(op::tensor(std::move(sizes))); }

// One position of each line along `dim`, which the library finds.
Definer position_along(const char* schema, const char* doc, const char* library) {
  return std::move(
      define(schema)
          .doc(doc)
          .bind(hidden)
          .dtypes(d::integral | d::floating)
          .result(ResultType::int64)
          .shape([](const Call& c) { return with(c.sizes("self"), c.dim("dim"), SymInt(int64_t(1))); })
          .library(library)
          .batched_in_front());
}

}  // namespace

// Checks the rank k among n elements; a k that is known only when a program runs is checked then.
static void check_rank(SymInt k, SymInt n, int dim) {
  runtime_check(sym::may_be_less(SymInt(int64_t(0)), k) && sym::may_be_at_most(k, n), "kthvalue")
      << "selected number k out of range for dimension " << dim << ": k = " << k << ", size " << n;
}

FACULA_FAMILY(sort) {
  define(
      "sort(Tensor self, int dim=-1, bool descending=False, bool stable=False) -> (Tensor values, Tensor indices)")
      .doc(
          "Elements along `dim` in ascending (or descending) order, and where they were. Always stable; NaN is the largest.")
      .dtypes(d::real | d::wide_unsigned)
      .result(with_indices)
      .shapes([](const Call& c) {
        c.dim("dim");
        return std::vector<Dims>(2, Dims(c.sizes("self")));
      })
      .strides_of("self")
      .library("sort")
      .batched_in_front()
      .reference([](const LoopCall& c, Index i) { return by_rank(c, i, c.flag("descending")); })
      .vjp(catalog::to_places)
      .samples(op::samples(
          {{{{"self", unequal({7})}}},
           {{{"self", unequal({3, 17, 2})}, {"dim", op::literal("1")}, {"descending", op::literal("True")}}},
           {{{"self", unequal({})}}}}));
  define("argsort(Tensor self, int dim=-1, bool descending=False, bool stable=False) -> Tensor")
      .doc("The indices that sort along `dim`.")
      .non_differentiable("the results are positions")
      .procedure([](const Tensor& self, int64_t dim, bool descending, bool) {
        return std::get<1>(sort(self, dim, descending, true));
      })
      .samples({"self![3, 4]", "self![3, 4], dim=0, descending=True", "self[0]"});
  define("msort(Tensor self) -> Tensor")
      .doc("Sorted along the first dimension.")
      .procedure([](const Tensor& self) { return std::get<0>(sort(self, 0)); })
      .samples({"self![3, 4]", "self![5]"});
  define(
      "topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)")
      .doc("The k largest (or smallest) elements along `dim` in order, and where they were.")
      .dtypes(d::integral | d::floating)
      .result(with_indices)
      .shapes([](const Call& c) {
        SymInt k = chosen(c);
        auto sizes = c.sizes("self");
        return std::vector<Dims>(2, sizes.empty() ? Dims{} : with(sizes, c.dim("dim"), k));
      })
      .library("topk")
      .batched_in_front()
      .reference([](const LoopCall& c, Index i) { return by_rank(c, i, c.flag("largest")); })
      .vjp(catalog::to_places)
      .samples(op::samples({{{{"self", unequal({9})}, {"k", op::literal("4")}}},
                            {{{"self", unequal({3, 8, 2})},
                              {"k", op::literal("3")},
                              {"dim", op::literal("1")},
                              {"largest", op::literal("False")}}}}));
  position_along(
      "_kth(Tensor self, SymInt k, int dim) -> Tensor",
      "Where the k-th smallest element along `dim` is, which keeps its place as 1; k counts from 1.", "kth")
      .check([](const Call& c) {
        int k = c.dim("dim");
        check_rank(c.integer("k"), c.size("self", k), k);
      })
      .reference([](const LoopCall& c, Index i) {
        return by_rank(c, i, false, loop::size(c.integer("k") - SymInt(int64_t(1))))[1];
      })
      .samples({"self![3, 8], k=3, dim=1", "self![5, 3], k=5, dim=0"});
  position_along(
      "_middle(Tensor self, bool ignore_nan, int dim) -> Tensor",
      "Where the middle element along `dim` is (the lower one of two), which keeps its place as 1: of those that are not NaN, or the first NaN if there is one.",
      "middle")
      .reference([](const LoopCall& c, Index i) {
        int k = c.dim("dim");
        SymInt n = c.size("self", k);
        Expr numbers = reduce(c, monoid::sum, {n}, [&](Index q) {
          return cast(bit_not(isnan(c.load("self", with(i, k, q[0])))), DType::Int64);
        });
        Expr all = eq(numbers, loop::size(n)),
             middle = truncdiv(max(numbers - int64_t(1), int64_t(0)), int64_t(2));
        return by_rank(c, i, false, c.flag("ignore_nan") ? middle : select(all, middle, numbers))[1];
      })
      .samples({"self![3, 8], ignore_nan=False, dim=1", "self![5, 3], ignore_nan=True, dim=0"});
  define("kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .grad_name("Kthvalue")
      .doc("The k-th smallest element along `dim` (k counts from 1), and where it is.")
      .procedure([](const Tensor& self, SymInt k, int64_t dim, bool keepdim) {
        int d = wrap_dim("kthvalue", dim, self.dim());
        SymInt n = self.dim() ? self.size(d) : SymInt(int64_t(1));
        index_check(n > SymInt(int64_t(0)), "kthvalue")
            << "expected reduction dim " << d << " to have non-zero size (shape " << to_string(self.sizes())
            << ")";
        check_rank(k, n, d);
        if (!self.dim()) return std::tuple(clone(self), zeros(Sizes(Dims{}), DType::Int64));
        Tensor indices = _kth(detach(self), k, dim), values = gather(self, dim, indices);
        if (keepdim) return std::tuple(values, indices);
        return std::tuple(squeeze(values, dim), squeeze(indices, dim));
      })
      .samples({"self![3, 5], k=2", "self![5, 3], k=1, dim=0, keepdim=True"});
  define("median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .grad_name("Median", 1)
      .doc("The middle element along `dim` (the lower one of two; NaN if there is one), and where it is.")
      .dtypes(d::integral | d::floating)
      .strict()
      .composite([](const Tensor& self, int64_t dim, bool keepdim) {
        int d = wrap_dim("median", dim, self.dim());
        SymInt n = self.dim() ? self.size(d) : SymInt(int64_t(1));
        index_check(n > SymInt(int64_t(0)), "median")
            << "expected reduction dim " << dim << " to have non-zero size";
        if (!self.dim()) return std::tuple(clone(self), zeros(Sizes(Dims{}), DType::Int64));
        Tensor indices = _middle(detach(self), false, dim), values = gather(self, dim, indices);
        return std::tuple(keepdim ? values : squeeze(values, dim), keepdim ? indices : squeeze(indices, dim));
      })
      .samples({"self![3, 5], dim=1", "self![4, 3], dim=0, keepdim=True"});
  define("median(Tensor self) -> Tensor")
      .doc("The middle element (the lower one of two; NaN if there is one).")
      .dtypes(d::integral | d::floating)
      .strict()
      .composite([](const Tensor& self) {
        if (self.numel() == SymInt(int64_t(0)))  // what NaN is as an integer
          return to_dtype(full(Dims{}, std::numeric_limits<double>::quiet_NaN(), DType::Float64),
                          self.dtype());
        return std::get<0>(median(reshape(self, -1), 0));
      })
      // Over equal elements, and over NaNs, as that of max().
      .vjp(catalog::even_over_ties(true))
      .samples({"self![3, 5]", "self![4]"});
}
