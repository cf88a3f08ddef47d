// Slices and masked elements that are overwritten or added to.
#include "facula/catalog/elements.h"
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
// self with `value` written to the slices along `dim` that the vector `index` names; `domain` is what is
// written.
// `from_end`: a negative index counts from the end.
Definition write_slices(const LoopCall& c, const Dims& domain, const std::function<Expr(const Index&)>& value,
                        bool from_end = false) {
  Definition def;
  def.rank = c.rank("self");
  Scatter s;
  s.combine = Scatter::Combine::assign;
  s.base = c.slot("self");
  bool scalar = def.rank == 0;
  s.domain = scalar ? Dims(c.sizes("index")) : domain;
  Index i;
  for (size_t k = 0; k < s.domain.size(); ++k) i.push_back(loop::index(int(k)));
  s.target = scalar ? Index{} : i;
  size_t k = size_t(c.dim("dim"));
  Expr at = cast(c.load("index", c.rank("index") ? Index{i[k]} : Index{}), DType::Int64);
  Expr n = loop::size(scalar ? SymInt(int64_t(1)) : c.size("self", int(k)));
  at = from_end ? check(at, n) : within(at, n);
  if (!scalar) s.target[k] = at;
  s.value = scalar ? at_scalar(at, value({})) : value(i);
  def.scatter = s;
  return def;
}
void check_slices(const Call& c) {
  check_index_dtype(c.name(), "index", c.tensor("index"));
  index_check(c.rank("index") <= 1, c.name())
      << "index is supposed to be a vector, got shape " << to_string(c.sizes("index"));
}
void check_filled(const Call& c) {
  index_check(c.dtype("index") == DType::Int64, "index_fill")
      << "expected dtype int64 for `index`, got " << c.dtype("index");
  check_slices(c);
}
}  // namespace

FACULA_FAMILY(index_write) {
  define("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor")
      .dtypes(d::stored)
      .doc("self with the slices of source written to those along `dim` that the 1-D `index` names.")
      .in_place()
      .shape([](const Call& c) {
        check_slices(c);
        runtime_check(c.dtype("index") == DType::Int64, "index_copy")
            << "expected a tensor of dtype int64 for `index`, got " << c.dtype("index");
        auto self = c.sizes("self"), source = c.sizes("source");
        runtime_check(c.dtype("self") == c.dtype("source"), "index_copy")
            << "self and source expected to have the same dtype, but got (self) " << c.dtype("self")
            << " and (source) " << c.dtype("source");
        auto d = size_t(c.dim("dim"));
        SymInt given = product(c.sizes("index"));
        bool alike = true;
        for (size_t k = 0; k < std::min(self.size(), source.size()); ++k)
          alike &= k == d || source[k] == self[k];
        std::string wanted = "source must have the shape of self but for dimension " + std::to_string(d) +
                             ", where it has one slice an index: self " + to_string(self) + ", index " +
                             to_string(c.sizes("index")) + ", source " + to_string(source);
        index_check(source.empty() || self.size() == source.size(), "index_copy") << wanted;
        runtime_check(alike, "index_copy") << wanted;
        index_check(given == (source.empty() ? SymInt(int64_t(1)) : source[d]), "index_copy") << wanted;
        return Dims(self);
      })
      .checks()
      .loop([](const LoopCall& c) {
        bool scalar = c.rank("source") == 0;
        return write_slices(c,
                            scalar && c.rank("self") ? Dims(c.rank("self"), SymInt(int64_t(1)))
                                                     : Dims(c.sizes("source")),
                            [&](const Index& i) { return c.load("source", scalar ? Index{} : i); });
      })
      .samples({"self[4, 3], dim=0, index<1>[1], source[1, 3]",
                "self[3, 4], dim=-1, index<1>[1], source[3, 1]", "self[], dim=0, index<1>[1], source[]"});
  define("index_fill(Tensor self, int dim, Tensor index, Scalar value) -> Tensor")
      .dtypes(d::stored)
      .overlap(Overlap::overwrites)
      .doc("self with value written to the slices along `dim` that the 1-D `index` names.")
      .check(fitting({"value"}))
      .in_place()
      .shape([](const Call& c) {
        check_filled(c);
        return Dims(c.sizes("self"));
      })
      .strides_of("self")
      .checks()
      .loop([](const LoopCall& c) {
        Dims domain(c.sizes("self"));
        if (!domain.empty()) domain[size_t(c.dim("dim"))] = product(c.sizes("index"));
        return write_slices(
            c, domain, [&](const Index&) { return c.scalar("value", compute_type(c.dtype("self"))); }, true);
      })
      .samples({"self[3, 4], dim=1, index<4>[2], value=2.5", "self[], dim=0, index<1>[1], value=1",
                "self[5], dim=0, index<5>[0], value=1"});
  define("index_fill.Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor")
      .grad_name("IndexFill", 1)
      .dtypes(d::stored)
      .overlap(Overlap::overwrites)
      .doc("self with the 0-d tensor value written to the slices along `dim` that the 1-D `index` names.")
      .in_place()
      .shape([](const Call& c) {
        check_filled(c);
        runtime_check(c.rank("value") == 0, "index_fill")
            << "only supports a 0-dimensional value tensor, but got shape " << to_string(c.sizes("value"));
        return Dims(c.sizes("self"));
      })
      .strides_of("self")
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self")}; })
      .promote(Promote::none)
      .checks()
      .loop([](const LoopCall& c) {
        Dims domain(c.sizes("self"));
        if (!domain.empty()) domain[size_t(c.dim("dim"))] = product(c.sizes("index"));
        return write_slices(
            c, domain, [&](const Index&) { return cast(c.load("value", {}), compute_type(c.dtype("self"))); },
            true);
      })
      // A slice that several indices fill counts once, as in PyTorch; the derived gradient would count it for each index.
      .vjp([](const Vjp& v) {
        int k = v.call().dim("dim");
        Tensor g = index_fill(v.grad(), k, v["index"], Scalar(0.0));
        return grads(g, Tensor(), sum(sub(v.grad(), g)));
      })
      .samples({"self[3, 4], dim=1, index<4>[2], value[]"});
  define("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor")
      .grad_name("MaskedScatter")
      .doc("self with the elements of source, in order, where mask is true.")
      .reads_data()
      .in_place()
      .procedure([](const Tensor& self, const Tensor& mask, const Tensor& source) {
        runtime_check(mask.dtype() == DType::Bool, "masked_scatter")
            << "only supports boolean masks, but got mask with dtype " << mask.dtype();
        runtime_check(self.dtype() == source.dtype(), "masked_scatter")
            << "expected self and source to have same dtypes but got " << self.dtype() << " and "
            << source.dtype();
        SymSpan shapes[] = {self.sizes(), mask.sizes()};
        Dims sizes = broadcast_sizes("masked_scatter", shapes);
        Tensor m = reshape(expand(mask, sizes), Sizes{int64_t(-1)}),
               from = reshape(source, Sizes{source.numel()});
        Tensor at = clamp_min(sub(cumsum(m, 0), 1), 0);
        if (!catalog::shows_elements(m)) {  // a kernel says what does not fit
          if (SymInt::surely_equal(from.numel(), int64_t(0))) from = zeros(Sizes{int64_t(1)}, from.dtype());
          return where(view(m, sizes), view(index_select(from, 0, at), sizes), self);
        }
        if (m.numel() == SymInt(int64_t(0))) return expand(self, sizes);
        int64_t wanted = sum(m).item().to_int();
        runtime_check(SymInt(wanted) <= from.numel(), "masked_scatter")
            << "number of elements of source, " << from.numel()
            << ", is smaller than the number of ones in mask, " << wanted;
        if (from.numel() == SymInt(int64_t(0))) return clone(expand(self, sizes));
        return where(view(m, sizes), view(index_select(from, 0, at), sizes), self);
      })
      .samples({"self[3, 4], mask?[4], source[12]", "self[5], mask?[5], source[5]"});
  define("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
      .doc("self with alpha * source added to the slices that the 1-D `index` names.")
      .grad_name("IndexAdd")
      .check(fitting({"alpha"}))
      .procedure([](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    const Scalar& alpha) {
        check_source("index_add", "source", self, source);
        Tensor y = _index_add(catalog::wide(self), dim, index, catalog::wide(source), alpha);
        return catalog::narrowed(y, self.dtype());
      })
      .in_place([](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                   const Scalar& alpha) {
        if (!catalog::is_rounded(self)) return _index_add_(self, dim, index, source, alpha);
        return copy_(self, index_add(self, dim, index, source, alpha));
      })
      .samples({"self[3, 4], dim=1, index<4>[5], source[3, 5]",
                "self[3, 4], dim=0, index<3>[2], source[2, 4], alpha=2"});
  define("_index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .bad_index(ErrorType::RuntimeError)
      .doc("index_add in the dtype of self: its sums are rounded at every step.")
      .bind(hidden)
      .called("index_add")
      .in_place()
      .shape([](const Call& c) {
        check_index_dtype("index_add", "index", c.tensor("index"));
        runtime_check(c.dtype("self") == c.dtype("source"), "index_add")
            << "self (" << c.dtype("self") << ") and source (" << c.dtype("source")
            << ") must have the same scalar type";
        index_check(c.rank("index") <= 1, "index_add")
            << "Index is supposed to be a vector, but got shape " << to_string(c.sizes("index"));
        auto self = c.sizes("self"), source = c.sizes("source");
        size_t d = size_t(c.dim("dim"));
        bool fits = self.size() == source.size();
        for (size_t k = 0; fits && k < self.size(); ++k) fits = k == d || self[k] == source[k];
        runtime_check(fits, "index_add")
            << "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            << to_string(self) << " source.shape = " << to_string(source);
        SymInt count = self.empty() ? SymInt(int64_t(1)) : source[d], given = product(c.sizes("index"));
        runtime_check(given == count, "index_add")
            << "Number of indices (" << given << ") should be equal to source.size(dim): (" << count
            << "), for dim: " << d;
        return Dims(self);
      })
      .checks()
      .loop([](const LoopCall& c) {
        Definition def;
        def.rank = c.rank("self");
        Scatter s;
        s.base = c.slot("self");
        s.domain = Dims(c.sizes("source"));
        Index i;
        for (size_t k = 0; k < s.domain.size(); ++k) i.push_back(loop::index(int(k)));
        s.target = i;
        int k = c.dim("dim");
        if (!i.empty())
          s.target[size_t(k)] =
              c.index_load("index", c.rank("index") ? Index{i[size_t(k)]} : Index{}, c.size("self", k));
        DType t = compute_type(c.dtype("self"));
        s.value = c.load("source", i) * c.scalar("alpha", t);
        if (i.empty()) {
          Index first(size_t(c.rank("index")), integer(0));
          s.value = at_scalar(c.index_load("index", first, int64_t(1)), s.value);
        }
        def.scatter = s;
        return def;
      })
      .samples({"self[3, 4], dim=1, index<4>[5], source[3, 5]",
                "self[3, 4], dim=0, index<3>[2], source[2, 4], alpha=2"});
}
