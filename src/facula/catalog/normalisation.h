// Helpers of normalisations: the variance of a batch in the dtype of sums.
#pragma once
#include "facula/op/helpers.h"
#include "facula/ops.h"

namespace facula::catalog {

// The mean over `dims`, to which what rounding left out of its sum is added, and the mean squared deviation.
inline std::tuple<Tensor, Tensor> moments(const Tensor& x, const Ints& dims, bool keepdim) {
  auto [mean, deviation] = _mean_and_deviation(x, dims, keepdim);
  return {mean, div(deviation, op::reduced_count(x.sizes(), dims))};
}

}  // namespace facula::catalog
