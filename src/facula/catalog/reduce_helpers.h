// Helpers of the families reduce, extremum, variance, vector_norm and cumulative.
#pragma once
#include <algorithm>

#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::reduce_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

// Sums and products of integers are int64 unless `dtype` says otherwise.
inline std::vector<DType> accumulated(const Call& c) {
  if (auto wanted = c.maybe_dtype("dtype")) {
    supported_check(!is_limited(*wanted), c.name()) << "not implemented for '" << *wanted << "'";
    return {*wanted};
  }
  DType t = c.dtype("self");
  return {is_differentiable(t) ? t : DType::Int64};
}
inline void check_not_empty(const Call& c, const char* what) {
  auto sizes = c.sizes("self");
  bool all = c["dim"].tag == Tag::ints && c.ints("dim").empty();
  runtime_check(!all || std::find(sizes.begin(), sizes.end(), SymInt(int64_t(0))) == sizes.end(), c.name())
      << "Expected reduction dim to be specified for input.numel() == 0: " << what
      << " of no elements is undefined";
  for (int k : c.dims("dim"))
    index_check(sizes.empty() || sizes[size_t(k)] != SymInt(int64_t(0)), c.name())
        << "expected reduction dim " << k << " to have non-zero size (shape " << to_string(sizes)
        << "): " << what << " of no elements is undefined";
}
// t moved by n places along dimension k; `fill` comes in.
inline Tensor shifted(const Tensor& t, int k, int64_t n, double fill) {
  Dims pad(size_t(2 * (t.dim() - k)), SymInt(int64_t(0)));
  pad[pad.size() - 2] = SymInt(n);
  pad[pad.size() - 1] = SymInt(-n);
  return constant_pad_nd(t, pad, fill);
}

}  // namespace facula::catalog::reduce_helpers
