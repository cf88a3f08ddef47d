// Sparse tensors: a handle with sizes, a dtype and no memory, whose storage holds its parts, which are dense
// tensors, in place of elements. COO: `indices` int64 [sparse dims, nnz], `values` [nnz, dense sizes...]; an
// element with several entries is their sum. CSR, of matrices: `crow` [rows + 1] and `indices` [nnz], the
// columns, int32 or int64. CSC: the same of the transpose, `crow` [columns + 1] and `indices`, the rows.
//
// Aliases (detach) share the parts. An operator only supports sparse operands if it has a rule for them, a function
// on the parts (run/sparse.h); reading the data raises. Only the handle has a history; the parts have none.
#pragma once
#include <memory>

#include "facula/tensor/tensor.h"

namespace facula {

enum class Layout : uint8_t { strided, sparse_coo, sparse_csr, sparse_csc };
const char* name(Layout layout);  // "sparse_coo"

struct SparseParts {
  Tensor indices, values;
  Tensor crow;              // of CSR and CSC
  bool coalesced = false;   // each index occurs once, in lexicographic order
  bool by_columns = false;  // CSC
  int sparse_dims() const { return crow.defined() ? 2 : int(indices.size(0).concrete()); }
  int64_t nnz() const { return values.size(0).concrete(); }
};

// A handle for parts that fit `sizes`, which is not checked; RuntimeError if the number of elements overflows.
Tensor make_sparse(SparseParts parts, SymSpan sizes);
// Null for a strided tensor. The parts live as long as the storage, which a write to the tensor replaces.
SparseParts* sparse_parts_of(const TensorImpl* t);

inline SparseParts& sparse_parts(const Tensor& t) { return *sparse_parts_of(t.impl()); }
inline bool is_sparse(const TensorImpl* t) { return sparse_parts_of(t) != nullptr; }
inline bool is_sparse(const Tensor& t) { return is_sparse(t.impl()); }
inline Layout layout_of(const TensorImpl* t) {
  auto* p = sparse_parts_of(t);
  if (!p) return Layout::strided;
  return !p->crow.defined() ? Layout::sparse_coo : p->by_columns ? Layout::sparse_csc : Layout::sparse_csr;
}
inline Layout layout_of(const Tensor& t) { return layout_of(t.impl()); }
inline bool is_coo(const Tensor& t) { return layout_of(t) == Layout::sparse_coo; }
inline bool is_csr(const Tensor& t) { return layout_of(t) == Layout::sparse_csr; }
inline bool is_csc(const Tensor& t) { return layout_of(t) == Layout::sparse_csc; }
inline bool is_compressed(const Tensor& t) { return is_csr(t) || is_csc(t); }

}  // namespace facula
