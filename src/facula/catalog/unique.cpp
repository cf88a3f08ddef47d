// Elements or slices that differ from others: the first of each run of equal ones, and all that are different, in order.
#include "facula/catalog/no_derivative.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

using Unique = std::tuple<Tensor, Tensor, Tensor>;

// 0, 1, ... n - 1.
Tensor counted(const SymInt& n) { return sub(cumsum(ones(Sizes{n}, DType::Int64), 0), 1); }

// The first of each run of equal rows. inverse: for each row its run, of the rows as they were before they were put in this
// order; counts: how many rows a run has. Both are empty tensors unless asked for.
Unique runs(const Tensor& rows, const Tensor& order, const Sizes& shape, bool inverse, bool counts) {
  Tensor none = empty(Sizes{int64_t(0)}, DType::Int64), run = none, lengths = none;
  if (!inverse && !counts) return {_run_values(rows), none, none};
  SymInt n = rows.size(0);
  Tensor starts = _run_starts(rows);
  if (inverse) {
    Tensor marks = index_add(zeros(Sizes{n}, DType::Int64), 0, starts, ones_like(starts));
    run = sub(cumsum(marks, 0), 1);
    if (order.defined()) run = scatter(zeros_like(run), 0, order, run);
    run = view(run, shape);
  }
  if (counts) {
    Tensor end = add(zeros(Sizes{int64_t(1)}, DType::Int64), n);
    lengths = sub(narrow(cat(std::vector<Tensor>{starts, end}, 0), 0, int64_t(1), starts.size(0)), starts);
  }
  return {index_select(rows, 0, starts), run, lengths};
}
Tensor flat(const Tensor& self) { return reshape(self, Sizes{self.numel()}); }
Tensor first_dim(const Tensor& self, int64_t dim) {
  index_check(self.dim() > 0, "unique") << "`dim` is " << dim << ", but self has no dimensions";
  Tensor rows = movedim(self, Sizes{dim}, Sizes{int64_t(0)});
  for (auto& n : rows.sizes().subspan(1))
    runtime_check(n != SymInt(int64_t(0)), "unique")
        << "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied to shape "
        << to_string(self.sizes());
  return rows;
}
Unique along(Unique u, int64_t dim) {
  std::get<0>(u) = movedim(std::get<0>(u), Sizes{int64_t(0)}, Sizes{dim});
  return u;
}
Unique values_without_derivative(Unique u, const Tensor& self, const char* of) {
  std::get<0>(u) = catalog::without_derivative(std::get<0>(u), {self}, of);
  return u;
}

Definer first_of_runs(const char* schema, const char* doc, const char* function) {
  return std::move(define(schema).doc(doc).bind(hidden).dtypes(d::stored).data_dependent(function).samples(
      {"self<3>[7]", "self<2>[5, 2]", "self[1]", "self[0, 3]"}));
}
// By row: whether it differs from the previous row.
Tensor changes(const Tensor& self) {
  SymInt n = self.size(0);
  if (n == SymInt(int64_t(0))) return zeros(Sizes{n}, DType::Bool);
  SymInt rest = n - SymInt(int64_t(1));
  Tensor differ = ne(narrow(self, 0, int64_t(1), rest), narrow(self, 0, int64_t(0), rest));
  if (self.dim() > 1) differ = any(reshape(differ, Sizes{rest, self.numel() / n}), 1);
  return cat(std::vector<Tensor>{ones(Sizes{int64_t(1)}, DType::Bool), differ}, 0);
}

}  // namespace

FACULA_FAMILY(unique) {
  first_of_runs(
      "_run_starts(Tensor self) -> Tensor",
      "Where runs of equal slices along the first dimension begin: int64 [count]. NaN is equal to nothing.",
      "run_starts")
      .result(ResultType::int64)
      .shape([](const Call& c) { return Dims{c.size("self", 0)}; })
      .reference([](const Tensor& self) { return squeeze(nonzero(changes(self)), Sizes{int64_t(1)}); });
  first_of_runs("_run_values(Tensor self) -> Tensor",
                "The first of each run of equal slices along the first dimension.", "run_values")
      .non_differentiable("unique and its variants, which call it, have no derivative")
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .reference([](const Tensor& self) {
        return index_select(self, 0, squeeze(nonzero(changes(self)), Sizes{int64_t(1)}));
      });
  define(
      "unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor values, Tensor inverse, Tensor counts)")
      .doc(
          "The first of every run of equal elements, or of equal slices along `dim`; for each element its run, and how many a run has, or empty tensors.")
      .bind(hidden)
      .dtypes(d::stored)
      .grad_name("UniqueConsecutive")
      .reads_data()
      .procedure([](const Tensor& self, bool inverse, bool counts, std::optional<int64_t> dim) {
        Tensor x = detach(self);
        if (!dim)
          return values_without_derivative(runs(flat(x), Tensor(), x.sizes(), inverse, counts), self,
                                           "unique_consecutive");
        Tensor rows = first_dim(x, *dim);
        return values_without_derivative(along(runs(rows, Tensor(), Sizes{rows.size(0)}, inverse, counts),
                                               *dim),
                                         self, "unique_consecutive");
      })
      .samples({"self<3>[7]", "self<2>[5, 2], return_inverse=True, return_counts=True, dim=0", "self[]"});
  define(
      "_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor values, Tensor inverse, Tensor counts)")
      .doc(
          "The different elements in ascending order; for each element which it is, and how many are equal to it, or empty tensors.")
      .bind(hidden)
      .called("unique")
      .dtypes(d::stored)
      .grad_name("Unique2")
      .reads_data()
      .procedure([](const Tensor& self, bool, bool inverse, bool counts) {
        Tensor x = detach(self);
        auto [rows, order] = sort(flat(x), 0, false, true);
        return values_without_derivative(runs(rows, order, x.sizes(), inverse, counts), self, "_unique2");
      })
      .samples({"self<3>[7]", "self<3>[3, 4], return_inverse=True, return_counts=True", "self[]"});
  define(
      "unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor values, Tensor inverse, Tensor counts)")
      .doc(
          "The different slices along `dim` in ascending order; for each slice which it is, and how many are equal to it, or empty tensors.")
      .bind(hidden)
      .called("unique")
      .dtypes(d::stored)
      .grad_name("UniqueDim")
      .reads_data()
      .procedure([](const Tensor& self, int64_t dim, bool, bool inverse, bool counts) {
        Tensor rows = first_dim(detach(self), dim), columns = flatten(unsqueeze(rows, -1), 1);
        Tensor order = counted(rows.size(0));
        // The last column first: a stable sort keeps what is below.
        for (int64_t k = columns.size(1).guard_int(); k-- > 0;) {
          Tensor column = index_select(select(columns, 1, k), 0, order);
          order = index_select(order, 0, std::get<1>(sort(column, 0, false, true)));
        }
        Unique u = runs(index_select(rows, 0, order), order, Sizes{rows.size(0)}, inverse, counts);
        return values_without_derivative(along(std::move(u), dim), self, "unique_dim");
      })
      .samples({"self<2>[7, 2], dim=0", "self<2>[2, 5], dim=1, return_inverse=True, return_counts=True"});
}
