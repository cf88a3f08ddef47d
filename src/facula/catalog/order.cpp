// Order statistics: running extremes, modes, medians and quantiles.
#include <limits>

#include "facula/autograd/calls.h"
#include "facula/catalog/accepted.h"
#include "facula/catalog/elements.h"
#include "facula/catalog/selected.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

// ---- cummax and cummin: the values by one scan, where they were by another over the places of all elements
// that were the extremum when they came
void define_running_extremum(const char* name, Monoid m, const char* doc) {
  define(std::string("_") + name + "(Tensor self, int dim) -> (Tensor values, Tensor indices)")
      .doc(doc)
      .bind(hidden)
      .dtypes(d::real)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int64}; })
      .shapes([](const Call& c) {
        c.dim("dim");
        return std::vector<Dims>(2, Dims(c.sizes("self")));
      })
      .non_differentiable("cummax and cummin, which call it, take the elements at its positions")
      .loop([m](const LoopCall& c, Index i) {
        if (i.empty()) return std::vector<Expr>{c.load("self", i), integer(0)};
        int k = c.dim("dim");
        SymInt n = c.size("self", k);
        auto value = [&](Index j) { return c.load("self", j); };
        Expr best = scan_over(c, m, i, k, n, value), x = c.load("self", i);
        Expr is_best = eq(x, best);
        if (is_floating(x.dtype())) is_best = is_best | isnan(x);
        return std::vector<Expr>{best, select(is_best, i[size_t(k)], integer(0))};
      })
      .samples({"self[3, 4], dim=1"});
  define(std::string(name) + "(Tensor self, int dim) -> (Tensor values, Tensor indices)")
      .doc(doc)
      .dtypes(d::real)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int64}; })
      .composite([m](const Tensor& self, int64_t dim) {
        auto [values, marks] = m == monoid::max ? _cummax(self, dim) : _cummin(self, dim);
        if (self.dim() == 0) return std::tuple(values, marks);
        return std::tuple(values, std::get<0>(_cummax(marks, dim)));
      })
      .vjp(catalog::to_places)
      .samples({"self![3, 4], dim=1", "self![4, 3], dim=0", "self[], dim=0", "self[0, 3], dim=1"});
}

Tensor without_dim(const Tensor& t, int64_t dim, bool keepdim) {
  return keepdim ? t : squeeze(t, Sizes{dim});
}

void check_line(const char* name, const Tensor& self, int64_t dim) {
  int k = wrap_dim(name, dim, self.dim());
  index_check(self.dim() == 0 || self.size(k) > SymInt(int64_t(0)), name)
      << "expected reduction dim " << k << " to have non-zero size (shape " << to_string(self.sizes()) << ")";
}

// ---- quantiles
enum class Between { linear, lower, higher, midpoint, nearest };
Between interpolation_of(const char* name, std::string_view text) {
  const char* names[] = {"linear", "lower", "higher", "midpoint", "nearest"};
  for (int k = 0; k < 5; ++k)
    if (text == names[k]) return Between(k);
  value_check(false, name)
      << "interpolation must be one of linear, lower, higher, midpoint or nearest, but got " << text;
  return Between::linear;
}

// Line `sorted` at fractional places along its last dimension.
Tensor at_ranks(const Tensor& sorted, Tensor ranks, Between between) {
  auto pick = [&](const Tensor& places) { return gather(sorted, -1, to_dtype(places, DType::Int64)); };
  switch (between) {
    case Between::lower: return pick(floor(ranks));
    case Between::higher: return pick(ceil(ranks));
    case Between::nearest: return pick(round(ranks));
    default: break;
  }
  Tensor lower_rank = floor(ranks);
  Tensor weight = between == Between::midpoint ? full(Dims{}, 0.5, ranks.dtype()) : sub(ranks, lower_rank);
  return lerp(pick(lower_rank), pick(ceil(ranks)), weight);
}

Tensor quantiles(const Call& c, const Tensor& self, Tensor q, std::optional<int64_t> dim, bool keepdim,
                 std::string_view interpolation, bool ignore_nan) {
  const char* name = c.name();
  runtime_check(self.numel() != SymInt(int64_t(0)), name)
      << "input tensor must be non-empty, got shape " << to_string(self.sizes());
  runtime_check(q.dim() <= 1, name) << "q must be a scalar or 1D tensor, got shape " << to_string(q.sizes());
  runtime_check(self.dtype() == DType::Float32 || self.dtype() == DType::Float64, name)
      << "input tensor must be either float or double dtype, got " << self.dtype();
  runtime_check(q.dtype() == self.dtype(), name)
      << "q tensor must be same dtype as the input tensor, got " << q.dtype() << " and " << self.dtype();
  Between between = interpolation_of(name, interpolation);
  if (c["q"].tag == Tag::tensor && q.numel() != SymInt(int64_t(0)) && catalog::has_elements(q)) {
    Tensor good = logical_and(ge(q, 0), le(q, 1));
    if (q.is_traced()) q = catalog::accepted(q, good);
    else runtime_check(all(good).item().to_bool(), name) << "q values must be in the range [0, 1]";
  }
  int k = dim ? wrap_dim(name, *dim, self.dim()) : 0;
  Tensor lines = !dim || self.dim() == 0 ? reshape(self, Sizes{self.numel()})
                                         : movedim(self, Sizes{int64_t(k)}, Sizes{int64_t(-1)});
  Tensor sorted = std::get<0>(sort(lines)), nan = isnan(sorted);
  double last = double(lines.size(-1).guard_int() - 1);
  Tensor each = reshape(q, Sizes{q.numel()}), ranks;
  if (ignore_nan) {
    Tensor count = sub(sum(logical_not(nan), Sizes{int64_t(-1)}, true), 1);
    ranks = mul(each, count);
    ranks = where(lt(ranks, 0), zeros_like(ranks), ranks);
  } else {
    ranks = where(any(nan, Sizes{int64_t(-1)}, true), full(Dims{}, last, q.dtype()), mul(each, last));
  }
  Tensor y = movedim(at_ranks(sorted, ranks, between), Sizes{int64_t(-1)}, Sizes{int64_t(0)});  // [q, others]
  if (keepdim && self.dim()) {
    if (dim) y = unsqueeze(y, k + 1);
    else {
      Dims shape(size_t(self.dim()) + 1, SymInt(int64_t(1)));
      shape[0] = y.size(0);
      y = view(y, shape);
    }
  }
  return contiguous(q.dim() ? y : squeeze(y, Sizes{int64_t(0)}));
}

// quantile and nanquantile, by a tensor of q or by one number.
void define_quantile(const char* name, const char* doc, bool ignore_nan, const char* more, const char* one) {
  define(
      std::string(name) +
      "(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor")
      .doc(doc)
      .autocast(Autocast::fp32)
      .reads_data()
      .procedure([ignore_nan](const Call& c, const Tensor& self, const Tensor& q, std::optional<int64_t> dim,
                              bool keepdim, std::string_view interpolation) {
        return quantiles(c, self, q, dim, keepdim, interpolation, ignore_nan);
      })
      .samples({more});
  define(
      std::string(name) +
      ".scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor")
      .doc(doc)
      .autocast(Autocast::fp32)
      .procedure([ignore_nan](const Call& c, const Tensor& self, double q, std::optional<int64_t> dim,
                              bool keepdim, std::string_view interpolation) {
        runtime_check(q >= 0 && q <= 1, c.name()) << "q must be in the range [0, 1] but got " << q;
        DType t = is_differentiable(self.dtype()) ? self.dtype() : default_dtype();
        return quantiles(c, self, full(Dims{}, q, t), dim, keepdim, interpolation, ignore_nan);
      })
      .samples({one});
}

}  // namespace

FACULA_FAMILY(order) {
  define_running_extremum(
      "cummax", monoid::max,
      "Largest values so far along `dim`, and where they were: of equal ones the last; NaN wins.");
  define_running_extremum(
      "cummin", monoid::min,
      "Smallest values so far along `dim`, and where they were: of equal ones the last; NaN wins.");
  define("mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .doc("The most frequent value along `dim`, of several the smallest, and where it is last.")
      .dtypes(d::real)
      .composite([](const Tensor& self, int64_t dim, bool keepdim) {
        check_line("mode", self, dim);
        if (self.dim() == 0) return std::tuple(clone(self), zeros(Sizes(Dims{}), DType::Int64));
        auto [sorted, order] = sort(detach(self), dim, false, true);
        int k = wrap_dim("mode", dim, self.dim());
        SymInt n = self.size(k), rest = n - SymInt(int64_t(1));
        Tensor changes = ne(narrow(sorted, k, int64_t(1), rest), narrow(sorted, k, int64_t(0), rest));
        Tensor edge = expand(full(Dims{}, Scalar(true), DType::Bool), with(self.sizes(), k, int64_t(1)));
        Tensor starts = cat(std::vector<Tensor>{edge, changes}, k),
               ends = cat(std::vector<Tensor>{changes, edge}, k);
        Dims shape(size_t(self.dim()), SymInt(int64_t(1)));
        shape[size_t(k)] = n;
        Tensor place = view(autograd::invoke("arange", {n}), shape);
        Tensor begin = std::get<0>(cummax(where(starts, place, zeros_like(place)), k));
        Tensor length = where(ends, sub(add(place, 1), begin), zeros_like(place));
        Tensor at = gather(order, k, argmax(length, k, true));
        Tensor values = gather(self, k, at);
        return std::tuple(without_dim(values, k, keepdim), without_dim(at, k, keepdim));
      })
      .samples({"self![3, 5]", "self![4, 3], dim=0, keepdim=True", "self[]"});
  define("nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .grad_name("Nanmedian", 1)
      .doc("The middle of the elements along `dim` that are not NaN (the lower one of two), and where it is.")
      .dtypes(d::integral | d::floating)
      .strict()
      .composite([](const Tensor& self, int64_t dim, bool keepdim) {
        check_line("nanmedian", self, dim);
        if (!is_floating(self.dtype())) return median(self, dim, keepdim);
        if (self.dim() == 0) return std::tuple(clone(self), zeros(Sizes(Dims{}), DType::Int64));
        Tensor indices = _middle(detach(self), true, dim);
        return std::tuple(without_dim(gather(self, dim, indices), dim, keepdim),
                          without_dim(indices, dim, keepdim));
      })
      .samples({"self![3, 5], dim=1", "self![4, 3], dim=0, keepdim=True"});
  define("nanmedian(Tensor self) -> Tensor")
      .doc("The middle of the elements that are not NaN (the lower one of two).")
      .dtypes(d::integral | d::floating)
      .strict()
      .composite([](const Tensor& self) {
        if (self.numel() == SymInt(int64_t(0)) || !is_floating(self.dtype())) return median(self);
        return std::get<0>(nanmedian(reshape(self, -1), 0));
      })
      // Over equal elements, as that of median().
      .vjp(catalog::even_over_ties(true))
      .samples({"self![3, 5]", "self![4]"});
  define_quantile(
      "quantile",
      "The values below which fractions q of the elements along `dim` (of all without) lie; of lines with a NaN it is NaN.",
      false, "self![3, 5], q[2](0, 1), dim=1",
      "self![3, 5], q=0.4, dim=0, keepdim=True, interpolation='nearest'");
  define_quantile(
      "nanquantile",
      "The values below which fractions q of the elements along `dim` (of all without) that are not NaN lie.",
      true, "self![3, 5], q[2](0, 1), dim=1", "self![3, 5], q=0.4, interpolation='midpoint'");
}
