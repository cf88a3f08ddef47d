// Helpers of the families count and histogram.
#pragma once
#include "facula/catalog/no_derivative.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::count_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

struct Range {
  double low, high;
};
// Sums of the weights (or of ones) by bin; elements in bin number `bins` are dropped.
inline Tensor binned(const Tensor& at, std::optional<Tensor> weight, const SymInt& bins, DType t) {
  Tensor each = weight ? reshape(facula::to(*weight, t), Sizes{at.numel()})
                       : expand(full(Dims{}, 1, t), Sizes{at.numel()});
  return narrow(index_add(zeros(Sizes{bins + SymInt(int64_t(1))}, t), 0, at, each), 0, int64_t(0), bins);
}
inline std::vector<Range> ranges(const char* name, const std::optional<std::vector<double>>& given,
                                 size_t dims) {
  if (!given) return {};
  runtime_check(given->size() == 2 * dims, name)
      << "for a " << dims << "-dimensional histogram range should have " << 2 * dims << " elements, but got "
      << given->size();
  std::vector<Range> out;
  for (size_t k = 0; k < dims; ++k) out.push_back({(*given)[2 * k], (*given)[2 * k + 1]});
  return out;
}

}  // namespace facula::catalog::count_helpers
