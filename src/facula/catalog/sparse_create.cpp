// Sparse tensors made of indices and values, which are checked.
#include "facula/catalog/sparse.h"
#include "facula/op/helpers.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;

namespace facula::catalog::sparse {
namespace {

void check_indices(const Tensor& indices, SymSpan sizes) {
  for (int k = 0; k < int(indices.size(0).concrete()); ++k) {
    auto [a, b] = range_of(facula::select(indices, 0, SymInt(int64_t(k))));
    int64_t n = sizes[size_t(k)].concrete();
    runtime_check(a >= 0, "sparse_coo_tensor") << "found negative index " << a << " for dim " << k;
    runtime_check(b < n, "sparse_coo_tensor") << "size is inconsistent with indices: for dim " << k
                                              << ", size is " << n << " but found index " << b;
  }
}

Tensor checked_coo(const Tensor& index_argument, const Tensor& values, SymSpan size, bool sized, bool once) {
  const char* op = "sparse_coo_tensor";
  runtime_check(!is_sparse(index_argument) && !is_sparse(values), op) << "expected dense indices and values";
  runtime_check(!is_complex(index_argument.dtype()), op)
      << "indices must be integers, got " << index_argument.dtype();
  Tensor indices = contiguous(facula::to(detach(index_argument), DType::Int64));
  runtime_check(indices.dim() == 2, op)
      << "indices must be sparse_dim x nnz, but got: " << to_string(indices.sizes());
  runtime_check(values.dim() >= 1, op)
      << "values must have a dimension of elements, got a tensor without dimensions";
  runtime_check(values.size(0) == indices.size(1), op)
      << "indices and values must have same nnz, but got nnz from indices: " << indices.size(1)
      << ", nnz from values: " << values.size(0);
  int64_t dims = indices.size(0).concrete(), dense = values.dim() - 1;
  Dims sizes(size);
  if (!sized) {
    for (int64_t k = 0; k < dims; ++k) {
      auto [low, high] = range_of(facula::select(indices, 0, SymInt(k)));
      sizes.push_back(SymInt(std::max<int64_t>(high + 1, 0)));
    }
    for (SymInt n : sizes_from(values.sizes(), 1)) sizes.push_back(n);
    return checked_coo(indices, values, sizes, true, once);
  }
  runtime_check(int64_t(sizes.size()) == dims + dense, op)
      << "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = " << int64_t(sizes.size())
      << ", sparse_dim = " << dims << ", dense_dim = " << dense;
  for (SymInt n : sizes)
    runtime_check(!(n < kZero), op) << "negative sizes are not possible: " << to_string(SymSpan(sizes));
  runtime_check(sizes_from(sizes, int(dims)) == sizes_from(values.sizes(), 1), op)
      << "values has incorrect size, expected the dense dimensions of " << to_string(SymSpan(sizes))
      << ", got " << to_string(values.sizes());
  check_indices(indices, sizes);
  if (once && indices.size(1) > kOne) {
    Tensor at =
        dims ? flat(indices, SymSpan(sizes).first(size_t(dims))) : zeros(Dims{indices.size(1)}, DType::Int64);
    Tensor rising = gt(slice(at, 0, kOne), slice(at, 0, kZero, indices.size(1) - kOne));
    runtime_check(facula::all(rising).item().to_bool(), op)
        << "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor";
  }
  return coo(indices, values, sizes, once);
}

Tensor checked_csr(const Tensor& crow, const Tensor& columns, const Tensor& values, SymSpan size,
                   bool sized) {
  const char* op = "sparse_csr_tensor";
  for (auto& t : {crow, columns})
    runtime_check((t.dtype() == DType::Int64 || t.dtype() == DType::Int32) && t.dim() == 1, op)
        << "crow_indices and col_indices must be vectors of int32 or int64, got " << t.dtype()
        << to_string(t.sizes());
  runtime_check(crow.dtype() == columns.dtype(), op)
      << "crow_indices and col_indices must have the same dtype, got " << crow.dtype() << " and "
      << columns.dtype();
  runtime_check(values.dim() == 1 && values.size(0) == columns.size(0), op)
      << "number of elements in col_indices must match the number of values, got "
      << to_string(columns.sizes()) << " and " << to_string(values.sizes());
  runtime_check(crow.size(0) > kZero, op) << "crow_indices must have at least one element";
  int64_t rows = crow.size(0).concrete() - 1, nnz = columns.size(0).concrete();
  Tensor at = contiguous(facula::to(detach(crow), DType::Int64));
  auto [low, high] = range_of(columns);
  Dims sizes = sized ? Dims(size) : Dims{SymInt(rows), SymInt(high + 1)};
  runtime_check(sizes.size() == 2, op) << "expected a matrix, got size " << to_string(SymSpan(sizes))
                                       << hint("batches of matrices are not taken");
  runtime_check(sizes[0] == SymInt(rows), op)
      << "crow_indices.shape[-1] must be equal to nrows + 1 (" << sizes[0] << " + 1), but got " << rows + 1;
  runtime_check(low >= 0 && high < sizes[1].concrete(), op)
      << "0 <= col_indices < " << sizes[1] << " is not satisfied: found " << (low < 0 ? low : high);
  runtime_check(facula::select(at, 0, kZero).item().to_int() == 0, op)
      << "crow_indices[..., 0] == 0 is not satisfied";
  runtime_check(facula::select(at, 0, SymInt(rows)).item().to_int() == nnz, op)
      << "crow_indices[..., -1] == nnz is not satisfied: nnz is " << nnz;
  if (rows) {
    Tensor steps = facula::sub(slice(at, 0, kOne), slice(at, 0, kZero, SymInt(rows)));
    auto [least, most] = range_of(steps);
    runtime_check(least >= 0 && most <= sizes[1].concrete(), op)
        << "0 <= crow_indices[..., 1:] - crow_indices[..., :-1] <= ncols is not satisfied: found "
        << (least < 0 ? least : most);
  }
  return make(contiguous(detach(columns)), contiguous(detach(crow)), values, sizes, true);
}

}  // namespace
}  // namespace facula::catalog::sparse

namespace sp = facula::catalog::sparse;

FACULA_FAMILY(sparse_create) {
  define(
      "sparse_coo_tensor(Tensor indices, Tensor values, SymInt[]? size=None, *, bool is_coalesced=False) -> Tensor")
      .doc(
          "A sparse tensor whose element at indices[:, k] is values[k]; elements of the same index are added up. Without `size` as large as the indices need.")
      .bind(hidden)
      .reads_data()
      .procedure([](const Call& c, const Tensor& indices, const Tensor& values) {
        return sp::checked_coo(indices, values, c.has("size") ? c.ints("size") : SymSpan(), c.has("size"),
                               c.flag("is_coalesced"));
      });
  define(
      "sparse_csr_tensor(Tensor crow_indices, Tensor col_indices, Tensor values, SymInt[]? size=None) -> Tensor")
      .doc(
          "A sparse matrix by rows: the elements of row i are those from crow_indices[i] to crow_indices[i + 1].")
      .bind(hidden)
      .reads_data()
      .procedure([](const Call& c, const Tensor& crow, const Tensor& columns, const Tensor& values) {
        return sp::checked_csr(crow, columns, values, c.has("size") ? c.ints("size") : SymSpan(),
                               c.has("size"));
      });
  define(
      "sparse_csc_tensor(Tensor ccol_indices, Tensor row_indices, Tensor values, SymInt[]? size=None) -> Tensor")
      .doc(
          "A sparse matrix by columns: the elements of column j are those from ccol_indices[j] to ccol_indices[j + 1].")
      .bind(hidden)
      .reads_data()
      .procedure([](const Call& c, const Tensor& ccol, const Tensor& rows, const Tensor& values) {
        Dims swapped;
        if (c.has("size"))
          for (SymInt n : c.ints("size")) swapped.insert(0, n);
        return sp::flipped(sp::checked_csr(ccol, rows, values, swapped, c.has("size")));
      });
}
