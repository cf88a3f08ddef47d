// Elements written along one dimension at the positions of an index tensor.
#include "facula/catalog/index_helpers.h"
#include "facula/catalog/warns.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::index_helpers;

namespace {
void check_scatter(const Call& c) {
  check_gather(c);
  Tensor index = c.tensor("index"), src = c.tensor("src");
  runtime_check(c.dtype("self") == src.dtype(), c.name())
      << "expected self.dtype to be equal to src.dtype, got " << c.dtype("self") << " and " << src.dtype()
      << hint("src.to(", name(c.dtype("self")), ")");
  if (index.numel() == SymInt(int64_t(0))) return;
  runtime_check(std::max(1, src.dim()) == std::max(1, index.dim()), c.name())
      << "index tensor must have the same number of dimensions as src: " << to_string(index.sizes())
      << " and " << to_string(src.sizes());
  for (int j = 0; j < index.dim(); ++j)
    runtime_check(!(index.size(j) > (src.dim() ? src.size(j) : SymInt(int64_t(1)))), c.name())
        << "size does not match at dimension " << j << ": expected index " << to_string(index.sizes())
        << " to be no larger than src " << to_string(src.sizes());
}
// self with values combined in at `index` along `dim`.
Definition scatter_along(const LoopCall& c, Scatter::Combine combine,
                         const std::function<Expr(const Index&)>& value) {
  Definition d;
  Tensor self = c.tensor("self"), index = c.tensor("index");
  d.rank = self.dim();
  Scatter s;
  s.combine = combine;
  s.base = c.slot("self");
  s.domain = Dims(index.sizes());
  Index i;
  for (int k = 0; k < index.dim(); ++k) i.push_back(loop::index(k));
  s.target = i;
  Expr at = cast(c.load("index", i), DType::Int64);
  if (self.dim() == 0) {
    s.target.clear();
    s.value = at_scalar(within(at, loop::size(int64_t(1))), value(i));
  } else if (std::max(1, index.dim()) != self.dim()) {  // an index of no elements
    s.domain = Dims{int64_t(0)};
    s.target = Index(size_t(self.dim()), integer(0));
    s.value = zero_of(compute_type(self.dtype()));
  } else {
    if (i.empty()) s.target = {integer(0)};
    int k = c.dim("dim");
    s.target[size_t(k)] = within(at, loop::size(self.size(k)));
    s.value = value(i);
  }
  d.scatter = s;
  return d;
}
Scatter::Combine combination(const Call& c) {
  auto reduce = c.str("reduce");
  runtime_check(reduce == "add" || reduce == "multiply", c.name())
      << "reduce argument must be either add or multiply, got '" << reduce << "'";
  return reduce == "add" ? Scatter::Combine::sum : Scatter::Combine::prod;
}
// How `_scatter_combine` combines.
Scatter::Combine monoid_of(const Call& c) {
  auto reduce = c.str("reduce");
  return reduce == "sum"              ? Scatter::Combine::sum
         : reduce.starts_with("prod") ? Scatter::Combine::prod
         : reduce.starts_with("amax") ? Scatter::Combine::max
                                      : Scatter::Combine::min;
}
// t without its elements where `zero` is true, which become `value`.
Tensor replaced(const Tensor& t, const Tensor& zero, double value) {
  return where(zero, full(Dims{}, value, t.dtype()), t);
}
// The gradients of a scattered product: the product of the others, found by division, and at single zeros by
// leaving them out. With several zeros in one place there is none.
Grads gradients_of_product(const Vjp& v, int k, const Tensor& index) {
  Tensor self = v["self"], src = v["src"], g = v.grad();
  auto conj_of = [](const Tensor& t) { return is_complex(t.dtype()) ? conj_physical(t) : t; };
  Grads out(3);
  if (v.needs("self")) {
    Tensor divisor = replaced(self, eq(self, 0), 1);
    out[0] = mul(g, conj_of(div(_scatter_combine(divisor, k, index, src, "prod"), divisor)));
  }
  if (!v.needs("src")) return out;
  Tensor zero = eq(src, 0);
  if (v.call().str("reduce").ends_with(" of segments")) zero = logical_or(zero, isnan(src));
  Tensor counted = to_dtype(zero, DType::Int64);
  Tensor zeros_there = gather(scatter_add(zeros(self.sizes(), DType::Int64), k, index, counted), k, index);
  Tensor single = logical_and(zero, eq(zeros_there, 1));
  Tensor rest = _scatter_combine(self, k, index, replaced(src, single, 1), "prod");
  Tensor quotient = div(gather(mul(g, conj_of(v.result())), k, index), conj_of(replaced(src, zero, 1)));
  out[2] = where(single, gather(mul(g, conj_of(rest)), k, index), quotient);
  return out;
}
// Gradients of an extremum, spread evenly over ties. "of src": self takes part only at places without source elements, since it
// is the monoid's identity elsewhere; "of segments": NaN also ties with NaN.
Grads gradients_of_extremum(const Vjp& v, int k, const Tensor& index) {
  Tensor self = v["self"], src = v["src"], y = v.result(), g = v.grad();
  auto reduce = v.call().str("reduce");
  Tensor same = eq(src, gather(y, k, index));
  if (reduce.ends_with(" of segments")) same = logical_or(same, isnan(src));
  Tensor of_self = to_dtype(eq(self, y), g.dtype()), of_src = to_dtype(same, g.dtype());
  if (reduce.ends_with(" of src") || reduce.ends_with(" of segments")) {
    Tensor fallen = scatter_add(zeros_like(of_self), k, index, of_src);
    of_self = where(gt(fallen, 0), zeros_like(of_self), of_self);
  }
  Tensor share = div(g, scatter_add(of_self, k, index, of_src));
  return grads(mul(of_self, share), Tensor(), mul(of_src, gather(share, k, index)));
}
// The value that scatter_along writes: the element of src at the position of the index. If the index is empty, src may have any shape.
std::function<Expr(const Index&)> source_at(const LoopCall& c) {
  return [&c](const Index& i) {
    bool fits = std::max(1, c.rank("src")) == std::max(1, int(i.size()));
    return fits ? c.load("src", i) : zero_of(compute_type(c.dtype("src")));
  };
}
// The gradient of a scatter's `src`, which may be larger than `index`: the rest was not read.
Tensor source_gradient(const Vjp& v) {
  Tensor index = v["index"];
  if (index.numel() == SymInt(int64_t(0))) return full(v.call().sizes("src"), 0, v.call().dtype("src"));
  Tensor g = gather(v.grad(), v.call().dim("dim"), index);
  auto sizes = v.call().sizes("src");
  if (sizes.empty()) return reshape(g, sizes);
  if (g.dim() == 0) g = unsqueeze(g, 0);
  Dims pad;
  bool larger = false;
  for (int k = g.dim() - 1; k >= 0; --k) {
    pad.push_back(int64_t(0));
    pad.push_back(sizes[size_t(k)] - g.size(k));
    larger |= !SymInt::surely_equal(sizes[size_t(k)], g.size(k));
  }
  return larger ? constant_pad_nd(g, pad, 0) : g;
}
}  // namespace

FACULA_FAMILY(scatter_along) {
  define("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
      .doc("self with src added at index along `dim`; in a fixed order, so sums are the same in every run.")
      .grad_name("ScatterAdd")
      .procedure([](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
        check_source("scatter_add", "src", self, src);
        Tensor y = _scatter_add(catalog::wide(self), dim, index, catalog::wide(src));
        return catalog::narrowed(y, self.dtype());
      })
      .in_place([](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
        if (!catalog::is_rounded(self)) return _scatter_add_(self, dim, index, src);
        return copy_(self, scatter_add(self, dim, index, src));
      })
      .samples({"self[3, 4], dim=1, index<4>[3, 4], src[3, 4]",
                "self[3, 4], dim=0, index<3>[2, 3], src[3, 4]", "self[5], dim=0, index<5>[5], src[5]",
                "self[17, 33], dim=0, index<17>[17, 33], src[17, 33]"});
  define("_scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
      .bad_index(ErrorType::RuntimeError)
      .doc("scatter_add in the dtype of self: its sums are rounded at every step.")
      .bind(hidden)
      .called("scatter_add")
      .in_place()
      .shape([](const Call& c) {
        check_scatter(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) { return scatter_along(c, Scatter::Combine::sum, source_at(c)); })
      .samples(
          {"self[3, 4], dim=1, index<4>[3, 4], src[3, 4]", "self[3, 4], dim=0, index<3>[2, 3], src[3, 4]"});
  define("scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
      .dtypes(d::stored)
      .bad_index(ErrorType::RuntimeError)
      .doc("self with src written at index along `dim`; the last of several writes wins.")
      .in_place()
      .shape([](const Call& c) {
        check_scatter(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) { return scatter_along(c, Scatter::Combine::assign, source_at(c)); })
      .samples(
          {"self[5, 3], dim=0, index<1>[1, 3], src[2, 3]", "self[3, 4], dim=1, index<1>[3, 1], src[3, 1]"});
  define("scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor")
      .dtypes(d::stored)
      .bad_index(ErrorType::RuntimeError)
      .doc("self with value written at index along `dim`.")
      .grad_name("Scatter", 1)
      .check(fitting({"value"}))
      .in_place()
      .shape([](const Call& c) {
        check_gather(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) {
        return scatter_along(c, Scatter::Combine::assign,
                             [&](const Index&) { return c.scalar("value", compute_type(c.dtype("self"))); });
      })
      .samples({"self[3, 4], dim=1, index<4>[3, 2], value=2.5"});
  define("scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor")
      .check(catalog::warns_once(
          "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch release. Use "
          "torch.scatter_reduce instead for more reduction options."))
      .bad_index(ErrorType::RuntimeError)
      .doc("self with src combined in at index along `dim`: reduce is 'add' or 'multiply'.")
      .in_place()
      .shape([](const Call& c) {
        check_scatter(c);
        combination(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) { return scatter_along(c, combination(c), source_at(c)); })
      .samples({"self[5, 3], dim=0, index<5>[2, 3], src[2, 3], reduce='add'"});
  define("scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor")
      .bad_index(ErrorType::RuntimeError)
      .doc("self with value combined in at index along `dim`: reduce is 'add' or 'multiply'.")
      .check(fitting({"value"}))
      .in_place()
      .shape([](const Call& c) {
        check_gather(c);
        combination(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) {
        return scatter_along(c, combination(c),
                             [&](const Index&) { return c.scalar("value", compute_type(c.dtype("self"))); });
      })
      .samples({"self[3, 4], dim=1, index<4>[3, 2], value=2.5, reduce='add'"});
  define("_scatter_combine(Tensor self, int dim, Tensor index, Tensor src, str reduce) -> Tensor")
      .bad_index(ErrorType::RuntimeError)
      .doc(
          "self with src, shaped like index, combined in at index along `dim`: reduce is 'sum', 'prod', 'amax' or 'amin'; the last two 'of src' or 'of segments', where self is no more than what nothing falls on.")
      .grad_name("ScatterReduce")
      .bind(hidden)
      .in_place()
      .shape([](const Call& c) {
        check_scatter(c);
        auto reduce = c.str("reduce");
        runtime_check(reduce == "sum" || reduce.starts_with("prod") || !is_complex(c.dtype("self")),
                      "scatter_reduce")
            << "complex numbers have no order, as " << reduce << " needs";
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) { return scatter_along(c, monoid_of(c), source_at(c)); })
      // Only the gradient of a sum could be derived.
      .vjp([](const Vjp& v) {
        int k = v.call().dim("dim");
        auto reduce = v.call().str("reduce");
        if (reduce == "sum") return grads(v.grad(), Tensor(), source_gradient(v));
        return reduce.starts_with("prod") ? gradients_of_product(v, k, v["index"])
                                          : gradients_of_extremum(v, k, v["index"]);
      })
      .samples({"self[5, 3], dim=0, index<5>[4, 3], src[4, 3], reduce='sum'",
                "self[5, 3], dim=0, index<5>[4, 3], src[4, 3](0.5, 1.5), reduce='prod'"});
}
