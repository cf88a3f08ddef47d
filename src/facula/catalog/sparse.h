// Helpers of the operators on sparse tensors (tensor/sparse.h), which consist of operators on the parts. Two nodes of the tape
// connect parts with handles: one reads the gradient of a sparse tensor at its indices, as the gradient of its values; the other
// makes the gradient of values a sparse tensor of the same indices.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "facula/op/call.h"
#include "facula/run/sparse.h"
#include "facula/tensor/sparse.h"

namespace facula::catalog::sparse {

inline const SymInt kZero = int64_t(0), kOne = int64_t(1);

bool wants_gradient(const Tensor& t);
// Calls `value` and records a node, whose backward turns the gradient of the result, sparse or dense, into that of `of`.
Tensor recorded(const char* name, const Tensor& of, const std::function<Tensor()>& value,
                std::function<Tensor(const Tensor& grad)> gradient);

// Sparse tensors of parts, whose values' history goes on in them.
Tensor make(const Tensor& indices, const Tensor& crow, const Tensor& values, SymSpan sizes, bool coalesced,
            bool by_columns = false);
Tensor coo(const Tensor& indices, const Tensor& values, SymSpan sizes, bool coalesced = false);
Tensor with_values(const Tensor& like, const Tensor& values);
Tensor empty_like_of(const Tensor& s, std::optional<DType> dtype);
Tensor sparse_of(const Tensor& dense,
                 int dims);  // where any element behind the first `dims` dimensions is not 0

// Parts of sparse tensors, with their history, and the same tensor otherwise.
Tensor values_of(const Tensor& s);
Tensor indices_of(const SparseParts& p);  // as those of COO
Tensor coalesced(const Tensor& s);
// The tensor for elementwise computations on values: coalesced if it requires a gradient, because the gradient of an element is
// one number.
Tensor pattern(const Tensor& s);
Tensor dense_of(const Tensor& s);
// The same elements, dense; the gradient is that of all elements and not of those alone that `s` has.
Tensor unmasked(const Tensor& s);
Tensor csr_of(const Tensor& x);
Tensor csc_of(const Tensor& x);
Tensor coo_of(const Tensor& s);
Tensor in_layout(Layout layout, const Tensor& s);  // the elements that are not 0, or those of a sparse tensor
Tensor flipped(const Tensor& s);  // the transpose of a compressed matrix, whose parts it shares: CSC of CSR

// Row-major places of indices [dims, n] in an index space of these sizes.
Tensor flat(const Tensor& indices, SymSpan sizes);
// The elements of a dense tensor, or of any, at these indices; 0 where a sparse one has none.
Tensor dense_at(const Tensor& x, const Tensor& indices);
Tensor elements_at(const Tensor& x, const Tensor& indices);
// The positions of the keys `wanted` among the sorted `keys`, and whether each is present.
std::pair<Tensor, Tensor> found(const Tensor& keys, const Tensor& wanted);
// The positions at which a vector of bool is true.
Tensor places_of(const Tensor& flags);
// Smallest and largest of some whole numbers; 0 and -1 of none.
std::pair<int64_t, int64_t> range_of(const Tensor& x);
// For each whole number from first[k] to first[k] + counts[k]: k, and that number; all one after the other.
std::pair<Tensor, Tensor> ranges(const Tensor& first, const Tensor& counts);
Tensor times(const Tensor& x, const Scalar& alpha);
Dims sizes_from(SymSpan sizes, int from);

op::Results by_body(const op::Call& c, op::Form);  // as for dense operands

// Rules of operators for sparse operands, by subject; sparse.cpp registers its own.
std::span<const run::SparseRules> arithmetic_rules(), product_rules(), shape_rules();

}  // namespace facula::catalog::sparse
