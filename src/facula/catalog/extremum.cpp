// Largest and smallest elements, and their positions.
#include "facula/catalog/reduce_helpers.h"
#include "facula/catalog/selected.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::even_over_ties, catalog::to_places;
namespace d = facula::dtypes;
using namespace facula::catalog::reduce_helpers;

namespace {
void check_any(const char* name, const Tensor& self) {
  runtime_check(self.numel() != SymInt(int64_t(0)), name)
      << "expected at least one element, but the shape is " << to_string(self.sizes())
      << hint("with `dim` the other dimensions may be empty");
}
std::function<Dims(const Call&)> reduced_not_empty(const char* what) {
  return [what](const Call& c) {
    Dims sizes = reduced()(c);
    check_not_empty(c, what);
    return sizes;
  };
}
Expr extremum(const LoopCall& c, Monoid m, Index i, int part_number) {
  if (c.rank("self") == 0) return part_number ? integer(0) : c.load("self", i);
  Axes axes(c);
  if (axes.domain().vars.empty())
    return part_number ? integer(0) : c.load("self", axes.join(i));  // of a 0-d tensor
  return part(axes.reduce(m, i,
                          [&](Index j) { return std::vector<Expr>{c.load("self", j), axes.position()}; }),
              part_number);
}
std::vector<Dims> twice(const Call& c) {
  auto sizes = reduced_not_empty("the extremum")(c);
  return {sizes, sizes};
}
}  // namespace

FACULA_FAMILY(extremum) {
  define("amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor")
      .doc("Largest value over `dim`; gradients are spread evenly over ties; NaN wins.")
      .dtypes(d::real)
      .shape(reduced_not_empty("the maximum"))
      .loop([](const LoopCall& c, Index i) {
        return reduce_over(c, monoid::max, i, [&](Index j) { return c.load("self", j); });
      })
      // By the result; derived, each element looks for the maximum anew.
      .vjp(even_over_ties(false))
      .samples(reduction_samples());
  define("amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor")
      .doc("Smallest value over `dim`; gradients are spread evenly over ties; NaN wins.")
      .dtypes(d::real)
      .shape(reduced_not_empty("the minimum"))
      .loop([](const LoopCall& c, Index i) {
        return reduce_over(c, monoid::min, i, [&](Index j) { return c.load("self", j); });
      })
      // By the result; derived, each element looks for the minimum anew.
      .vjp(even_over_ties(false))
      .samples(reduction_samples());
  define("_top(Tensor self, int[1] dim=[], bool keepdim=True) -> Tensor")
      .doc("Largest value over `dim`; of no elements -inf.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape(reduced())
      .loop([](const LoopCall& c, Index i) {
        return reduce_over(c, monoid::max, i, [&](Index j) { return c.load("self", j); });
      })
      // By the result; derived, each element looks for the maximum anew.
      .vjp(even_over_ties(true))
      .samples({"self[3, 4], dim=[1]"});
  define("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)")
      .doc("Smallest and largest value, of all elements or along `dim`.")
      .dtypes(d::real)
      .composite([](const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
        Sizes over = dim ? Sizes(*dim) : Sizes();
        return std::tuple(amin(self, over, keepdim), amax(self, over, keepdim));
      })
      .samples({"self![3, 4]", "self![3, 4], dim=1", "self![2, 3, 4], dim=0, keepdim=True", "self[]"});
  define("max(Tensor self) -> Tensor")
      .converting_out()
      .doc("Largest element; its gradient is spread evenly over ties.")
      .grad_name("Max", 1)
      .composite([](const Tensor& self) {
        check_any("max", self);
        return amax(self);
      })
      // Over NaNs too, unlike amax.
      .vjp(even_over_ties(true))
      .samples({"self[]", "self![5]", "self![2, 3, 4]", "self![33, 65]"});
  define("min(Tensor self) -> Tensor")
      .converting_out()
      .doc("Smallest element; its gradient is spread evenly over ties.")
      .grad_name("Min", 1)
      .composite([](const Tensor& self) {
        check_any("min", self);
        return amin(self);
      })
      // Over NaNs too, unlike amin.
      .vjp(even_over_ties(true))
      .samples({"self[]", "self![5]", "self![2, 3, 4]", "self![33, 65]"});
  define("max.other(Tensor self, Tensor other) -> Tensor")
      .converting_out()
      .doc("The larger of both, element by element.")
      .forwards("maximum")
      .samples({"self![3, 4], other[4]"});
  define("min.other(Tensor self, Tensor other) -> Tensor")
      .converting_out()
      .doc("The smaller of both, element by element.")
      .forwards("minimum")
      .samples({"self![3, 4], other[4]"});
  define("max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .doc("Largest values along `dim` and their first positions.")
      .dtypes(d::real)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int64}; })
      .shapes(twice)
      .loop([](const LoopCall& c, Index i) {
        return std::vector<Expr>{extremum(c, monoid::argmax, i, 0), extremum(c, monoid::argmax, i, 1)};
      })
      // By the position; derived, each element looks for the maximum anew.
      .vjp(to_places)
      .samples({"self[], dim=0", "self![3, 4], dim=1", "self![2, 3, 4], dim=0, keepdim=True",
                "self![33, 65], dim=1"});
  define("min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .doc("Smallest values along `dim` and their first positions.")
      .dtypes(d::real)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int64}; })
      .shapes(twice)
      .loop([](const LoopCall& c, Index i) {
        return std::vector<Expr>{extremum(c, monoid::argmin, i, 0), extremum(c, monoid::argmin, i, 1)};
      })
      // By the position; derived, each element looks for the minimum anew.
      .vjp(to_places)
      .samples({"self[], dim=0", "self![3, 4], dim=1", "self![2, 3, 4], dim=0, keepdim=True",
                "self![33, 65], dim=0"});
  define("put_along(Tensor grad, Tensor indices, SymInt[] size, int dim, bool keepdim) -> Tensor")
      .doc(
          "Zeros of `size` with grad at `indices` along `dim`: the gradient of operators that pick one value.")
      .bind(hidden)
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .loop([](const LoopCall& c, Index i) {
        if (i.empty()) return c.load("grad", i);
        int k = wrap_dim("put_along", c.integer("dim").guard_int(), int(i.size()));
        Index j = i;
        if (c.flag("keepdim")) j[size_t(k)] = integer(0);
        else j = without(i, k);
        Expr g = c.load("grad", j);
        return select(eq(c.load("indices", j), i[size_t(k)]), g, constant(0.0, g.dtype()));
      })
      .samples({"grad[3], indices<4>[3], size=[3, 4], dim=1, keepdim=False",
                "grad[3, 1], indices<4>[3, 1], size=[3, 4], dim=1, keepdim=True"});
  define("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
      .doc("Position of the first largest value along `dim` (of the flattened tensor if None).")
      .dtypes(d::integral | d::floating)
      .result(ResultType::int64)
      .shape(reduced_not_empty("the position of the maximum"))
      .loop([](const LoopCall& c, Index i) { return extremum(c, monoid::argmax, i, 1); })
      .samples({"self[]", "self![2, 3, 4]", "self![3, 4], dim=1", "self![3, 4], dim=0, keepdim=True",
                "self![33, 65], dim=1"});
  define("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
      .doc("Position of the first smallest value along `dim` (of the flattened tensor if None).")
      .dtypes(d::integral | d::floating)
      .result(ResultType::int64)
      .shape(reduced_not_empty("the position of the minimum"))
      .loop([](const LoopCall& c, Index i) { return extremum(c, monoid::argmin, i, 1); })
      .samples({"self[]", "self![2, 3, 4]", "self![3, 4], dim=1", "self![3, 4], dim=0, keepdim=True",
                "self![33, 65], dim=0"});
}
