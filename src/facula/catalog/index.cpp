// Reading and writing at computed positions. Indices are checked wherever they are read: one that does not
// fit raises IndexError and nothing is read or written outside.
#include "facula/catalog/index_helpers.h"
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
// ---- advanced indexing: which dimensions are indexed, and where the broadcast indices go in the result
struct Advanced {
  std::vector<int> dims;  // indexed dimensions of self
  Dims broadcast;         // sizes of the indices together
  int front = 0;          // position of the broadcast dimensions in the result
  Dims result;
};
Advanced advanced(const Call& c) {
  Advanced a;
  auto indices = c.tensors("indices");
  auto sizes = c.sizes("self");
  index_check(indices.size() <= sizes.size(), c.name())
      << "too many indices for tensor of dimension " << sizes.size() << " (shape " << to_string(sizes) << ")";
  std::vector<SymSpan> shapes;
  std::vector<Tensor> used;
  for (size_t k = 0; k < indices.size(); ++k) {
    if (!indices[k].defined()) continue;
    index_check(is_integral(indices[k].dtype()) && indices[k].dtype() != DType::Int16 &&
                    indices[k].dtype() != DType::Int8 && !is_limited(indices[k].dtype()),
                c.name())
        << "tensors used as indices must be int64, int32, uint8 or bool tensors, got " << indices[k].dtype();
    a.dims.push_back(int(k));
    used.push_back(indices[k]);
  }
  for (auto& t : used) shapes.push_back(t.sizes());
  bool fit = true;
  try {
    a.broadcast = broadcast_sizes(c.name(), shapes);
  } catch (const Error&) { fit = false; }
  index_check(fit, c.name())
      << "shape mismatch: indexing tensors could not be broadcast together with shapes " << shapes_of(used);
  bool adjacent = !a.dims.empty() && a.dims.back() - a.dims.front() + 1 == int(a.dims.size());
  a.front = adjacent ? a.dims.front() : 0;
  for (int k = 0, next = 0; k <= int(sizes.size()); ++k) {
    if (next == a.front && int(a.result.size()) == a.front)
      for (auto s : a.broadcast) a.result.push_back(s);
    if (k == int(sizes.size())) break;
    if (std::find(a.dims.begin(), a.dims.end(), k) != a.dims.end()) continue;
    a.result.push_back(sizes[size_t(k)]);
    ++next;
  }
  return a;
}
// The element of self that belongs to element `i` of the indexed result.
Index indexed_element(const LoopCall& c, const Advanced& a, const Index& i) {
  auto sizes = c.sizes("self");
  auto indices = c.tensors("indices");
  Index at(sizes.size());
  Index shared(i.begin() + a.front, i.begin() + a.front + long(a.broadcast.size()));
  size_t next = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (std::find(a.dims.begin(), a.dims.end(), int(k)) == a.dims.end()) {
      if (int(next) == a.front) next += a.broadcast.size();
      at[k] = i[next++];
      continue;
    }
    auto own = indices[k].sizes();
    Index j;
    for (size_t d = 0; d < own.size(); ++d)
      j.push_back(own[d] == SymInt(int64_t(1)) ? integer(0) : shared[shared.size() - own.size() + d]);
    at[k] = check(cast(c.load("indices", j, int(k)), DType::Int64), loop::size(sizes[k]));
  }
  return at;
}
// Boolean and uint8 masks become the positions of their true elements, one index a dimension of the mask.
bool is_mask(const Tensor& index) {
  return index.defined() && (index.dtype() == DType::Bool || index.dtype() == DType::UInt8);
}
std::vector<Tensor> expanded_masks(const char* name, const Tensor& self, const std::vector<Tensor>& indices) {
  std::vector<Tensor> out;
  for (auto& t : indices) {
    if (!is_mask(t)) {
      out.push_back(t);
      continue;
    }
    for (int k = 0; k < t.dim(); ++k)
      index_check(int(out.size()) + k < self.dim() && t.size(k) == self.size(int(out.size()) + k), name)
          << "the shape of the mask " << to_string(t.sizes()) << " at index " << k
          << " does not match the shape of the indexed tensor " << to_string(self.sizes()) << " at index "
          << int(out.size()) + k;
    Tensor positions = nonzero(t);
    for (int k = 0; k < t.dim(); ++k) out.push_back(select(positions, 1, k));
  }
  return out;
}
// A mask without dimensions as the only index takes all of self or nothing.
bool is_one_flag(const Tensor& self, const std::vector<Tensor>& indices) {
  if (indices.size() != 1 || !is_mask(indices[0]) || indices[0].dim() != 0) return false;
  index_check(self.dim() > 0, "index_put_")
      << "too many indices for tensor of dimension 0 (got 1)" << hint("self[mask] = value takes one");
  return true;
}
Tensor with_values(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values,
                   bool accumulate) {
  if (is_one_flag(self, indices))
    return where(ne(indices[0], Scalar(int64_t(0))), _index_put(self, {}, values, accumulate), self);
  auto at = expanded_masks("index_put_", self, indices);
  if (!accumulate || self.dtype() != values.dtype()) return _index_put(self, at, values, accumulate);
  return catalog::narrowed(_index_put(catalog::wide(self), at, catalog::wide(values), true), self.dtype());
}
}  // namespace

FACULA_FAMILY(index) {
  define("_index(Tensor self, Tensor?[] indices) -> Tensor")
      .dtypes(d::stored)
      .doc("Elements of self at integer indices, one tensor (or None) a dimension, as NumPy's.")
      .bind(hidden)
      .shape([](const Call& c) { return advanced(c).result; })
      .checks()
      .loop([](const LoopCall& c, Index i) { return c.load("self", indexed_element(c, advanced(c), i)); })
      .samples({"self[3, 4], indices{<3>[5]}", "self[3, 4, 2], indices{<3>[2, 1], <3>[2]}"});
  define("index(Tensor self, Tensor?[] indices) -> Tensor")
      .doc("Advanced indexing, self[indices]: integer tensors, boolean masks and None, one a dimension.")
      .bind(hidden)
      .procedure([](const Tensor& self, const std::vector<Tensor>& indices) {
        return _index(self, expanded_masks("index", self, indices));
      })
      .samples({"self[3, 4], indices{<3>[5]}", "self[3, 4, 2], indices{<3>[2, 1], <3>[2]}",
                "self[3, 4], indices{<3>[0]}"});
  define("_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor")
      .dtypes(d::stored)
      .doc("self with values written (or added) at integer indices.")
      .bind(hidden)
      .in_place()
      .shape([](const Call& c) {
        auto a = advanced(c);
        Tensor self = c.tensor("self"), values = c.tensor("values");
        runtime_check(self.dtype() == values.dtype(), "index_put_")
            << "requires the source and destination dtypes match, got " << self.dtype()
            << " for the destination and " << values.dtype() << " for the source"
            << hint("values.to(", name(self.dtype()), ")");
        runtime_check(broadcasts_to(values.sizes(), a.result), "index_put_")
            << "shape mismatch: value tensor of shape " << to_string(values.sizes())
            << " cannot be broadcast to indexing result of shape " << to_string(SymSpan(a.result));
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) {
        auto a = advanced(c);
        Definition def;
        def.rank = c.rank("self");
        Scatter s;
        s.combine = c.flag("accumulate") ? Scatter::Combine::sum : Scatter::Combine::assign;
        s.base = c.slot("self");
        s.domain = a.result;
        Index i, j;
        for (size_t k = 0; k < a.result.size(); ++k) i.push_back(loop::index(int(k)));
        auto own = c.sizes("values");
        for (size_t k = 0; k < own.size(); ++k)
          j.push_back(own[k] == SymInt(int64_t(1)) ? integer(0) : i[i.size() - own.size() + k]);
        s.target = indexed_element(c, a, i);
        s.value = c.load("values", j);
        def.scatter = s;
        return def;
      })
      .samples({"self[3, 4], indices{<3>[5]}, values[5, 4], accumulate=True",
                "self[4, 3], indices{<1>[1], <3>[1]}, values[1]"});
  define("index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor")
      .overlap(Overlap::overwrites)
      .doc("self with values at `indices` (integer tensors, masks, None).")
      .procedure(with_values)
      .in_place(
          [](const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) {
            if (is_one_flag(self, indices) || (accumulate && catalog::is_rounded(self)))
              return copy_(self, with_values(self, indices, values, accumulate));
            return _index_put_(self, expanded_masks("index_put_", self, indices), values, accumulate);
          })
      .samples({"self[3, 4], indices{<3>[5]}, values[5, 4], accumulate=True",
                "self[4, 3], indices{<1>[1], <3>[1]}, values[1]", "self[3, 4], indices{<1>[1]}, values[4]"});
  define("_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor")
      .doc(
          "self[indices], indices beyond the ends taken for the nearest one, and `fill` where mask is false.")
      .bind(function)
      .procedure(
          [](const Tensor& self, const Tensor& mask, const std::vector<Tensor>& indices, const Scalar& fill) {
            return masked_fill(index(self, within(self, indices)), logical_not(mask), fill);
          })
      .samples({"self[3, 4], mask?[5], indices{<3>[5], <4>[5]}, fill=0.5"});
  define(
      "_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor")
      .doc("self with values added at `indices`, taken as _unsafe_masked_index does, where mask is true.")
      .bind(function)
      .procedure([](const Tensor& self, const Tensor& mask, const std::vector<Tensor>& indices,
                    const Tensor& values) {
        if (self.numel() == SymInt(int64_t(0))) return clone(self);
        return index_put(self, within(self, indices), masked_fill(values, logical_not(mask), 0), true);
      })
      .samples({"self[3, 4], mask?[5], indices{<3>[5], <4>[5]}, values[5]"});
  define("masked_select(Tensor self, Tensor mask) -> Tensor")
      .grad_name("MaskedSelect")
      .doc("The elements of self where mask is true, as a vector.")
      .reads_data()
      .procedure([](const Tensor& self, const Tensor& mask) {
        runtime_check(mask.dtype() == DType::Bool, "masked_select")
            << "expected BoolTensor for mask, got " << mask.dtype();
        Dims sizes = broadcast_sizes("masked_select", std::vector<SymSpan>{self.sizes(), mask.sizes()});
        if (sizes.empty()) sizes = {SymInt(int64_t(1))};  // the result is a vector even of a 0-d tensor
        return index(expand(self, sizes), std::vector<Tensor>{expand(mask, sizes)});
      })
      .samples({"self[3, 4], mask?[3, 4]", "self[3, 4], mask?[4]", "self[33, 65], mask?[33, 65]"});
  define("nonzero(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Positions of the non-zero elements: int64 [count, rank], in row-major order.")
      .bind(hidden)
      .result(ResultType::int64)
      .shape([](const Call& c) { return Dims{product(c.sizes("self")), SymInt(int64_t(c.rank("self")))}; })
      .data_dependent("nonzero")
      .reference([](const Tensor& self) {
        Tensor found = reshape(ne(self, 0), Sizes{int64_t(-1)});
        Tensor at = narrow(argsort(found, 0, true, true), 0, int64_t(0), sum(found).item().to_int());
        std::vector<Tensor> columns;
        int64_t stride = 1;
        for (int k = self.dim(); k-- > 0; stride *= self.size(k).guard_int())
          columns.insert(columns.begin(), remainder(floor_divide(at, stride), self.size(k).guard_int()));
        return columns.empty() ? empty(Sizes{at.size(0), SymInt(int64_t(0))}, DType::Int64)
                               : stack(columns, 1);
      })
      .samples({"self[3, 4]", "self[]", "self[0, 3]", "self[33, 65]"});
  define("where.positions(Tensor condition) -> Tensor[]")
      .doc("The positions where condition is true, a vector for each dimension.")
      .bind(function)
      .reads_data()
      .procedure([](const Tensor& condition) {
        return unbind(nonzero(condition.dim() ? condition : view(condition, 1)), 1);
      })
      .samples({"condition?[3, 4]"});
  define("argwhere(Tensor self) -> Tensor")
      .doc("Positions of the non-zero elements: int64 [count, rank], in row-major order.")
      .non_differentiable("the results are positions")
      .reads_data()
      .forwards("nonzero")
      .samples({"self[3, 4]", "self[0, 3]"});
}
