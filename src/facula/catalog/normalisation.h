// Helpers of normalisations: the variance of a batch in the dtype of sums, and differences from PyTorch (tests/edges).
#pragma once
#include "facula/op/helpers.h"
#include "facula/ops.h"

namespace facula::catalog {

// The mean over `dims`, to which what rounding left out of its sum is added, and the mean squared deviation.
inline std::tuple<Tensor, Tensor> moments(const Tensor& x, const Ints& dims, bool keepdim) {
  auto [mean, deviation] = _mean_and_deviation(x, dims, keepdim);
  return {mean, div(deviation, op::reduced_count(x.sizes(), dims))};
}

inline constexpr const char* kInfiniteWeight =
    "(float|bfloat)\\d+ (value|value \\d|gradient of input): .*(nan|inf).* with weight: .*(inf|max|lowest)";
inline constexpr const char* kWeightLast =
    "(x - mean) / deviation comes before the weight; PyTorch folds the mean times the weight into the shift, and "
    "gradients meet the weight last, so infinite (or overflowing) products cancel elsewhere";
inline constexpr const char* kLargeWeight =
    "float32 gradient of input: -?[\\d.e+]+ for -?[\\d.e+]+ with weight: .*(max|lowest)";
inline constexpr const char* kCancelledElements =
    "elements of the gradient that all but cancel differ by the rounding of what they are made of, which the largest "
    "weights lift above what the comparison lets pass";
inline constexpr const char* kLargest =
    "(float|bfloat)\\d+ (value|value \\d|gradient of \\w+): .* with input: (max|lowest|all max|max and lowest)";
inline constexpr const char* kLargestVariance =
    "beside the largest numbers sums and squares overflow: the variance is infinite here and 1 / deviation 0, while "
    "PyTorch takes squares from squares, which makes NaN or 0 of it";
inline constexpr const char* kEqualElements =
    "(float|bfloat)\\d+ value( \\d)?: -?\\d.* for -?\\d.* with (input: all|weight: )";
inline constexpr const char* kNoRest =
    "equal elements are their mean and leave the bias alone; PyTorch's x * scale + shift leaves a rounding error, "
    "which 1 / sqrt(eps) or the weight makes large";
inline constexpr const char* kStatistics16 =
    "b?float16 (value 2|gradient of (input|weight)): (-?\\d\\S*|finite) for (-?\\d\\S*|finite|nan|-?inf) with ";
inline constexpr const char* kRoundedStatistics =
    "PyTorch computes with the mean and 1 / deviation that it returns, rounded to 16 bits; here they are rounded last";

}  // namespace facula::catalog
