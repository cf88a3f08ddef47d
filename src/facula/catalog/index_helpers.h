// Helpers of the families index, gather, scatter_along, index_write, repeat and embedding.
#pragma once
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::index_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

inline Expr zero_of(DType t) { return constant(Scalar(int64_t(0)), t); }
inline Tensor flat(const Tensor& t) { return reshape(t, Sizes{int64_t(-1)}); }
// The positions for repeat_interleave: each k in order, repeated counts[k] times.
inline Tensor positions(const Call& c, const Tensor& counts) {
  Tensor at = _repeated_positions(facula::to(counts, DType::Int64));
  runtime_check(!c.has("output_size") || c.integer("output_size") == at.size(0), c.name())
      << "output_size " << (c.has("output_size") ? c.integer("output_size") : SymInt(int64_t(0)))
      << " does not match the sum of the repeats, " << at.size(0);
  return at;
}
inline bool indexes(const Tensor& index) {
  return (is_integral(index.dtype()) && itemsize(index.dtype()) >= 4 && !is_limited(index.dtype())) ||
         index.numel() == SymInt(int64_t(0));
}
inline void check_index_dtype(const char* name, const char* arg, const Tensor& index) {
  runtime_check(indexes(index), name) << "expected dtype int32 or int64 for `" << arg << "`, got "
                                      << index.dtype() << hint(arg, ".long() converts");
}
inline void check_gather(const Call& c, bool writes = true) {
  Tensor self = c.tensor("self"), index = c.tensor("index");
  check_index_dtype(c.name(), "index", index);
  int k = c.dim("dim");
  bool same_rank = std::max(1, self.dim()) == std::max(1, index.dim());
  if ((writes || !same_rank) && index.numel() == SymInt(int64_t(0))) return;  // of no elements: any shape
  runtime_check(same_rank, c.name()) << "index tensor must have the same number of dimensions as self: "
                                     << to_string(self.sizes()) << " and " << to_string(index.sizes());
  for (int j = 0; j < index.dim() && j < self.dim(); ++j)
    runtime_check(j == k || !(index.size(j) > self.size(j)), c.name())
        << "size does not match at dimension " << j << ": expected index " << to_string(index.sizes())
        << " to be no larger than self " << to_string(self.sizes()) << " apart from dimension " << k;
}
// The only index into a 0-d tensor is 0: x where `at` is, whose load looks at it.
inline Expr at_scalar(Expr at, Expr x) { return select(eq(at, integer(0)), x, zero_of(x.dtype())); }
// Indices of elements that exist.
inline std::vector<Tensor> within(const Tensor& self, std::vector<Tensor> indices) {
  for (size_t k = 0; k < indices.size(); ++k) {
    if (!indices[k].defined() || indices[k].dtype() == DType::Bool) continue;
    int64_t n = self.size(int(k)).guard_int();
    indices[k] = clamp(indices[k], Scalar(-n), Scalar(n - 1));
  }
  return indices;
}
inline void check_source(const char* op, const char* called, const Tensor& self, const Tensor& source) {
  runtime_check(self.dtype() == source.dtype(), op) << "self (" << self.dtype() << ") and " << called << " ("
                                                    << source.dtype() << ") must have the same scalar type";
}

}  // namespace facula::catalog::index_helpers
