// Sparse tensors: a handle with sizes, a dtype and no memory, whose storage refers to parts, which are dense tensors.
// COO: `indices` int64 [sparse dims, nnz], `values` [nnz, dense sizes...]; duplicate indices are summed. CSR
// (matrices): `crow` [rows + 1] and `indices` [nnz], the columns, int32 or int64.
//
// Aliases (detach) share the parts. An operator only supports sparse operands if it has a rule for them, a function
// on the parts (run/sparse.h); reading the data raises. Only the handle has a history; the parts have none.
#pragma once
#include <memory>

#include "facula/tensor/tensor.h"

namespace facula {

enum class Layout : uint8_t { strided, sparse_coo, sparse_csr };
const char* name(Layout layout);  // "sparse_coo"

struct SparseParts {
  Tensor indices, values;
  Tensor crow;             // for CSR
  bool coalesced = false;  // indices are unique and in lexicographic order
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
  return !p ? Layout::strided : p->crow.defined() ? Layout::sparse_csr : Layout::sparse_coo;
}
inline Layout layout_of(const Tensor& t) { return layout_of(t.impl()); }
inline bool is_coo(const Tensor& t) { return layout_of(t) == Layout::sparse_coo; }
inline bool is_csr(const Tensor& t) { return layout_of(t) == Layout::sparse_csr; }

}  // namespace facula
