// Reductions, dimensions and copies of sparse tensors.
#include "facula/catalog/sparse.h"
#include "facula/catalog/vectors.h"
#include "facula/op/helpers.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula::op;

namespace facula::catalog::sparse {
namespace {

// `keep`: the summed dimensions stay, of size 1. The gradient of s has elements where s has some.
Tensor sum_of(const Tensor& self, const Ints& dims, bool keep, std::optional<DType> dtype) {
  bool all = dims.empty() || int(dims.size()) == self.dim();
  if (is_compressed(self) && dims.empty()) return facula::sum(values_of(self), std::nullopt, false, dtype);
  Tensor s = pattern(coo_of(self));
  auto& p = sparse_parts(s);
  Tensor values = values_of(s);
  Dims row_axes, behind, result_sizes;
  std::vector<bool> summed(size_t(s.dim()), false);
  for (auto k : dims) summed[size_t(k)] = true;
  if (dims.empty()) summed.assign(summed.size(), true);
  for (int k = 0; k < s.dim(); ++k) {
    if (k >= p.sparse_dims() && summed[size_t(k)]) behind.push_back(SymInt(int64_t(k - p.sparse_dims() + 1)));
    if (k < p.sparse_dims() && !summed[size_t(k)]) row_axes.push_back(SymInt(int64_t(k)));
    if (!summed[size_t(k)]) result_sizes.push_back(s.size(k));
    else if (keep) result_sizes.push_back(kOne);
  }
  bool no_rows = row_axes.empty() && !(keep && !all);
  if (no_rows) {  // dense: over all sparse dimensions
    behind.insert(0, kZero);
    Tensor dense = reshape(facula::sum(values, behind, false, dtype), result_sizes);
    return keep && is_compressed(self) ? in_layout(layout_of(self), dense) : dense;
  }
  if (!behind.empty()) values = facula::sum(values, behind, keep, dtype);
  else if (DType t = dtype.value_or(is_differentiable(s.dtype()) ? s.dtype() : DType::Int64); t != s.dtype())
    values = facula::to(values, t);
  std::vector<Tensor> rows;
  for (int k = 0; k < p.sparse_dims(); ++k) {
    if (!summed[size_t(k)]) rows.push_back(facula::select(p.indices, 0, SymInt(int64_t(k))));
    else if (keep) rows.push_back(zeros(Dims{SymInt(p.nnz())}, DType::Int64));
  }
  bool same_rows = int(row_axes.size()) == p.sparse_dims();
  Tensor result = coalesced(coo(stack(rows, 0), values, result_sizes, p.coalesced && same_rows));
  return in_layout(layout_of(self), result);
}
// The dimensions that are summed, none for all of them.
Ints summed_dims(const Call& c) { return c.has("dim") ? c.dims("dim") : Ints(); }

Results masked_sum(const Call& c, Form) {
  return sum_of(c.tensor("self"), summed_dims(c), false, c.maybe_dtype("dtype"));
}
Results sum(const Call& c, Form) {
  Tensor s = c.tensor("self");
  auto dtype = c.maybe_dtype("dtype");
  bool keep = c.flag("keepdim");
  Ints dims = summed_dims(c);
  runtime_check(!is_compressed(s) || dims.empty() || keep, c.name())
      << "reduction operations on CSR tensors with keepdim=False is unsupported"
      << hint("keepdim=True works, and to_sparse_coo() gives a tensor that takes both");
  Dims expandable(s.sizes());
  for (int k = 0; k < s.dim(); ++k)
    if (dims.empty() || std::ranges::find(dims, k) != dims.end()) expandable[size_t(k)] = kOne;
  return recorded(
      dims.empty() ? "SumBackward0" : "SumBackward1", s, [&] { return sum_of(s, dims, keep, dtype); },
      [expandable, sizes = Dims(s.sizes()), t = s.dtype()](const Tensor& g) {
        return facula::to(facula::expand(reshape(is_sparse(g) ? dense_of(g) : g, expandable), sizes), t);
      });
}

Results norm(const Call& c, Form) {
  if (c.has("dim")) return {};
  Tensor s = coalesced(c.tensor("self")), values = values_of(s);
  std::vector<Value> args(c.args().begin(), c.args().end());
  args[0] = Value(values);
  return op::call(c.op(), args);
}
Results any(const Call& c, Form) {
  if (c.has("dim")) return {};
  return facula::any(values_of(coalesced(c.tensor("self"))));
}
// The order of dimensions, by what the call is named by its parameters.
Results permuted(const Call& c, const Ints& order) {
  Tensor s = c.tensor("self");
  if (is_compressed(s)) return order[0] == 0 ? s : flipped(s);
  auto& p = sparse_parts(s);
  int dims = p.sparse_dims();
  Dims rows, behind{kZero}, sizes, back(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    runtime_check((order[k] < dims) == (int(k) < dims), c.name())
        << "transposed dimensions must be both sparse or both dense, of a tensor with " << dims
        << " sparse and " << s.dim() - dims << " dense dimensions";
    if (order[k] < dims) rows.push_back(SymInt(order[k]));
    else behind.push_back(SymInt(order[k] - dims + 1));
    sizes.push_back(s.size(int(order[k])));
    back[size_t(order[k])] = int64_t(k);
  }
  std::vector<int64_t> at;
  bool sorted = true;
  for (size_t k = 0; k < rows.size(); ++k) {
    at.push_back(rows[k].concrete());
    sorted &= at[k] == int64_t(k);
  }
  auto value = [&] {
    Tensor values = behind.size() > 2 ? facula::permute(p.values, behind) : p.values;
    return coo(sorted ? p.indices : facula::index_select(p.indices, 0, vector_of(at)), values, sizes,
               p.coalesced && sorted);
  };
  return recorded("PermuteBackward0", s, value, [back](const Tensor& g) { return facula::permute(g, back); });
}
Results permute(const Call& c, Form) {
  int rank = c.rank("self");
  Ints order;
  if (c.op().schema.index_of("dims") >= 0) {
    for (SymInt k : c.ints("dims")) order.push_back(wrap_dim(c.name(), k.concrete(), rank));
    Ints sorted(order);
    std::sort(sorted.begin(), sorted.end());
    bool each = int(sorted.size()) == rank;
    for (size_t k = 0; each && k < sorted.size(); ++k) each = int64_t(k) == sorted[k];
    runtime_check(each, c.name()) << "expected every dimension of shape " << to_string(c.sizes("self"))
                                  << " once, got " << to_string(c.ints("dims"));
    return permuted(c, order);
  }
  for (int k = 0; k < rank; ++k) order.push_back(k);
  if (c.op().schema.index_of("dim0") >= 0) {
    if (rank) std::swap(order[size_t(c.dim("dim0"))], order[size_t(c.dim("dim1"))]);
  } else {
    if (rank > 2) return {};
    if (rank == 2) std::swap(order[0], order[1]);
  }
  return permuted(c, order);
}
// The last two dimensions exchanged.
Results matrix_transpose(const Call& c, Form) {
  int rank = c.rank("self");
  if (rank < 2) return {};
  Ints order;
  for (int k = 0; k < rank; ++k) order.push_back(k);
  std::swap(order[size_t(rank - 2)], order[size_t(rank - 1)]);
  return permuted(c, order);
}

Results unsqueeze(const Call& c, Form) {
  Tensor s = c.tensor("self");
  if (is_compressed(s)) return {};
  s = pattern(s);
  auto& p = sparse_parts(s);
  int at = wrap_dim(c.name(), c.integer("dim").concrete(), s.dim() + 1);
  Dims sizes(s.sizes());
  sizes.insert(size_t(at), kOne);
  if (at > p.sparse_dims())
    return coo(p.indices, facula::unsqueeze(values_of(s), at - p.sparse_dims() + 1), sizes, p.coalesced);
  std::vector<Tensor> rows = facula::unbind(p.indices, 0);
  rows.insert(rows.begin() + at, zeros(Dims{SymInt(p.nnz())}, DType::Int64));
  return coo(stack(rows, 0), values_of(s), sizes, p.coalesced);
}

Results select(const Call& c, Form) {
  Tensor s = c.tensor("self");
  s = is_compressed(s) ? coalesced(coo_of(s)) : pattern(s);
  auto& p = sparse_parts(s);
  int dim = c.dim("dim");
  int64_t n = s.size(dim).concrete(), k = c.integer("index").concrete();
  index_check(k >= -n && k < n, c.name())
      << "index " << k << " is out of bounds for dimension " << dim << " with size " << n;
  if (k < 0) k += n;
  Dims sizes(s.sizes());
  sizes.erase(size_t(dim));
  if (dim >= p.sparse_dims())
    return coo(p.indices, facula::select(values_of(s), dim - p.sparse_dims() + 1, SymInt(k)), sizes,
               p.coalesced);
  Tensor at = places_of(eq(facula::select(p.indices, 0, SymInt(int64_t(dim))), Scalar(k)));
  Tensor values = facula::index_select(values_of(s), 0, at);
  if (p.sparse_dims() == 1) return facula::sum(values, Dims{kZero}, false, s.dtype());
  std::vector<Tensor> rows = facula::unbind(p.indices, 0);
  rows.erase(rows.begin() + dim);
  return coo(facula::index_select(stack(rows, 0), 1, at), values, sizes, p.coalesced);
}

Results index_select(const Call& c, Form) {
  Tensor s = c.tensor("self"), index = c.tensor("index");
  if (!is_coo(s) || is_sparse(index)) return {};
  int dim = c.dim("dim");
  runtime_check(index.dim() <= 1 && (index.dtype() == DType::Int64 || index.dtype() == DType::Int32),
                c.name())
      << "expected a vector of int64 or int32 as index, got " << index.dtype() << to_string(index.sizes());
  index = facula::to(reshape(index, Dims{index.numel()}), DType::Int64);
  s = pattern(s);
  auto& p = sparse_parts(s);
  Dims sizes(s.sizes());
  sizes[size_t(dim)] = index.size(0);
  if (dim >= p.sparse_dims())
    return coo(p.indices, facula::index_select(values_of(s), dim - p.sparse_dims() + 1, index), sizes,
               p.coalesced);
  int64_t n = s.size(dim).concrete();
  auto [low, high] = range_of(index);
  index_check(low >= -n && high < n, c.name()) << "index out of range: between " << low << " and " << high
                                               << " for dimension " << dim << " of size " << n;
  if (low < 0) index = where(lt(index, Scalar(int64_t(0))), facula::add(index, Scalar(n)), index);
  // Elements sorted by this dimension; each place of the index takes those of its row.
  Tensor row = facula::select(p.indices, 0, SymInt(int64_t(dim)));
  auto [keys, order] = sort(row, -1, false, true);
  Tensor first = searchsorted(keys, index),
         counts = facula::sub(searchsorted(keys, index, false, true), first);
  auto [mine, among] = ranges(first, counts);
  Tensor at = facula::index_select(order, 0, among);
  std::vector<Tensor> rows = facula::unbind(facula::index_select(p.indices, 1, at), 0);
  rows[size_t(dim)] = mine;
  return coo(stack(rows, 0), facula::index_select(values_of(s), 0, at), sizes, p.coalesced && dim == 0);
}

Results unbind(const Call& c, Form) {
  Tensor s = c.tensor("self");
  if (is_compressed(s)) s = coalesced(coo_of(s));
  int dim = c.dim("dim");
  Results all;
  for (int64_t k = 0; k < s.size(dim).concrete(); ++k) all.push_back(facula::select(s, dim, SymInt(k)));
  return all;
}

Results cat(const Call& c, Form) {
  std::vector<Tensor> tensors = c.tensors("tensors"), values, indices;
  for (auto& t : tensors) {
    if (!is_coo(t)) return {};
    t = pattern(t);
  }
  const Tensor& first = tensors[0];
  int dim = wrap_dim(c.name(), c.integer("dim").concrete(), first.dim()),
      dims = sparse_parts(first).sparse_dims();
  Dims sizes(first.sizes());
  int64_t offset = 0;
  DType type = first.dtype();
  for (auto& t : tensors) type = promote(type, t.dtype());
  supported_check(dim < dims, c.name())
      << "joins sparse tensors along their sparse dimensions, of which they have " << dims << ", got dim "
      << dim;
  for (auto& t : tensors) {
    auto& p = sparse_parts(t);
    bool fits = t.dim() == first.dim() && p.sparse_dims() == dims;
    for (int k = 0; fits && k < t.dim(); ++k) fits = k == dim || t.size(k) == first.size(k);
    runtime_check(fits, c.name()) << "sizes and sparse dimensions of tensors must match except in dimension "
                                  << dim << ": " << shapes_of(tensors);
    std::vector<int64_t> step(size_t(dims), 0);
    step[size_t(dim)] = offset;
    indices.push_back(facula::add(p.indices, facula::unsqueeze(vector_of(step), 1)));
    values.push_back(facula::to(values_of(t), type));
    offset += t.size(dim).concrete();
  }
  sizes[size_t(dim)] = SymInt(offset);
  return coo(facula::cat(indices, 1), facula::cat(values), sizes);
}

Results zeros_like(const Call& c, Form) {
  bool asked = c.op().schema.index_of("dtype") >= 0;
  return empty_like_of(c.tensor("self"), asked ? c.maybe_dtype("dtype") : std::nullopt);
}
Results clone(const Call& c, Form) {
  Tensor s = c.tensor("self");
  auto& p = sparse_parts(s);
  Tensor crow = p.crow.defined() ? facula::clone(p.crow) : Tensor(), indices = facula::clone(p.indices);
  return recorded(
      "CloneBackward0", s,
      [&] { return make(indices, crow, facula::clone(p.values), s.sizes(), p.coalesced, p.by_columns); },
      [](const Tensor& g) { return g; });
}
Results copy(const Call& c, Form form) {
  Tensor self = c.tensor("self"), src = c["src"].tag == Tag::tensor ? c.tensor("src") : Tensor();
  runtime_check(is_sparse(self) && is_sparse(src), c.name())
      << "copy_() between dense and sparse Tensors is not implemented: self is " << name(layout_of(self))
      << (src.defined() ? std::string(", src ") + name(layout_of(src)) : ", src a number")
      << hint("to_dense() and to_sparse() convert");
  if (form == Form::in_place && self.is_same(src)) return self;
  Tensor s = facula::clone(src);
  return s.dtype() == self.dtype() ? s : facula::to(s, self.dtype());
}
Results to(const Call& c, Form) {
  Tensor s = c.tensor("self");
  DType t = c["dtype"].dtype;
  if (t == s.dtype()) return c.flag("copy") ? facula::clone(s) : s;
  return to_dtype(s, t);
}
Results itself(const Call& c, Form) { return c.tensor("self"); }
Results detached(const Call& c, Form) { return c.tensor("self").detached(); }

}  // namespace

std::span<const run::SparseRules> shape_rules() {
  static const run::SparseRules rules[] = {
      {"copy", copy},
      {"zero", zeros_like},
      {"zeros_like", zeros_like},
      {"empty_like", zeros_like},
      {"clone", clone},
      {"to", to},
      {"detach", detached},
      {"resolve_conj", itself},
      {"conj_physical", by_body},
      {"resolve_neg", itself},
      {"sum", sum},
      {"_sparse_sum", masked_sum},
      {"any", any},
      {"norm", norm},
      {"norm.str", by_body},
      {"permute", permute},
      {"transpose", permute},
      {"t", permute},
      {"T", permute},
      {"mT", matrix_transpose},
      {"unsqueeze", unsqueeze},
      {"select", select},
      {"unbind", unbind},
      {"index_select", index_select},
      {"cat", cat},
      {"stack", by_body},
  };
  return rules;
}

}  // namespace facula::catalog::sparse
