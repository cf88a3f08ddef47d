// Gradients of depthwise convolutions in memory of exactly their size, against plain loops. Sanitizers see here what an
// operator's padded memory would hide.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "facula/device/cpu/depthwise.h"

using namespace facula;
using namespace facula::device::cpu;

namespace {

std::mt19937 random_bits(11);

std::vector<float> drawn(int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (auto& v : x) v = float(std::normal_distribution<double>()(random_bits));
  return x;
}
int up_to(int most) { return 1 + int(random_bits() % unsigned(most)); }

double distance(const std::vector<double>& a, const float* b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - double(b[i])));
  return most;
}
TEST(Depthwise, GradientOfTheWeightIsThatOfPlainLoops) {
  for (int round = 0; round < 40; ++round) {
    DepthwiseShape s{DType::Float32, up_to(3), up_to(40), 3 + up_to(9),
                     3 + up_to(9),   0,        0,         up_to(7),
                     up_to(7),       {},       {},        {}};
    for (int d = 0; d < 2; ++d) {
      s.stride[d] = up_to(2), s.dilation[d] = up_to(2);
      s.padding[d] = s.dilation[d] * (d ? s.kw : s.kh) / 2;
    }
    s.oh = (s.h + 2 * s.padding[0] - s.dilation[0] * (s.kh - 1) - 1) / s.stride[0] + 1;
    s.ow = (s.w + 2 * s.padding[1] - s.dilation[1] * (s.kw - 1) - 1) / s.stride[1] + 1;
    if (s.oh < 1 || s.ow < 1) continue;
    auto input = drawn(s.n * s.h * s.w * s.c), grad = drawn(s.n * s.oh * s.ow * s.c);
    std::vector<float> weight(size_t(s.c * s.kh * s.kw));
    std::vector<double> want(weight.size());
    depthwise_backward_weight(s, input.data(), grad.data(), weight.data());
    auto each = [&](int64_t i, int64_t y, int64_t x, int64_t p, int64_t q) {
      int64_t r = y * s.stride[0] + p * s.dilation[0] - s.padding[0],
              t = x * s.stride[1] + q * s.dilation[1] - s.padding[1];
      if (r < 0 || t < 0 || r >= s.h || t >= s.w) return;
      for (int64_t c = 0; c < s.c; ++c)
        want[size_t((c * s.kh + p) * s.kw + q)] +=
            double(grad[size_t(((i * s.oh + y) * s.ow + x) * s.c + c)]) *
            input[size_t(((i * s.h + r) * s.w + t) * s.c + c)];
    };
    for (int64_t i = 0; i < s.n; ++i)
      for (int64_t y = 0; y < s.oh; ++y)
        for (int64_t x = 0; x < s.ow; ++x)
          for (int64_t p = 0; p < s.kh; ++p)
            for (int64_t q = 0; q < s.kw; ++q) each(i, y, x, p, q);
    EXPECT_LT(distance(want, weight.data()), 1e-3);
  }
}

}  // namespace
