// Random examples of matrix products, for tests of their kernels.
#pragma once
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "facula/device/cpu/generated_product.h"

namespace facula::test {

using namespace facula::device::cpu;

inline std::mt19937& random_bits() {
  static std::mt19937 bits = [] {
    unsigned seed = std::random_device()();
    std::printf("seed %u\n", seed);
    return std::mt19937(seed);
  }();
  return bits;
}
inline int64_t up_to(int64_t most) { return 1 + int64_t(random_bits()() % uint64_t(most)); }
inline bool coin() { return random_bits()() % 2; }
inline float drawn() { return float(std::normal_distribution<double>()(random_bits())); }

// A matrix whose rows or columns are adjacent, with gaps between them, and no element behind the last one.
struct Matrix {
  int64_t rows, columns, count;
  Adjacent adjacent;
  int64_t stride, batch;
  std::vector<float> x;

  Matrix(int64_t rows, int64_t columns, int64_t count, Adjacent adjacent, int64_t gap)
      : rows(rows), columns(columns), count(count), adjacent(adjacent) {
    bool by_rows = adjacent == Adjacent::row;
    int64_t lines = by_rows ? rows : columns, line = by_rows ? columns : rows;
    stride = line + gap, batch = lines * stride;
    x.resize(size_t((count - 1) * batch + (lines - 1) * stride + line));
    for (auto& v : x) v = drawn();
  }
  float& at(int64_t b, int64_t r, int64_t c) {
    return x[size_t(b * batch + (adjacent == Adjacent::row ? r * stride + c : c * stride + r))];
  }
  MatrixOperand operand() const { return {x.data(), adjacent, stride, count > 1 ? batch : 0}; }
};
inline Adjacent any_order() { return coin() ? Adjacent::row : Adjacent::column; }

struct Example {
  Matrix a, b, out;
  std::vector<float> bias;
  float alpha = 1, beta = 0;
  GeneratedProduct product;
  void* operands[2];
  std::vector<float> residual, result;
  int64_t row_stride = 0;  // of `residual`, the param of an epilogue that reads it

  Example(int64_t m, int64_t n, int64_t k, int64_t count, Adjacent left, Adjacent right, bool with_bias)
      : a(m, k, count, left, up_to(5) - 1),
        b(k, n, count, right, up_to(5) - 1),
        out(m, n, count, Adjacent::row, 0),
        bias(size_t(n)) {
    for (auto& v : bias) v = drawn();
    product = {m, n, k, count, a.operand(), b.operand(), out.x.data(), n, m * n};
    operands[0] = bias.data();
    if (with_bias) product.epilogue = bias_epilogue(), product.operands = {operands, 1};
  }
  // Follows the product by an epilogue whose operands are the bias and a matrix that is added.
  void follow_by(const Epilogue& e, bool beside) {
    product.epilogue = e;
    row_stride = product.n;
    residual.resize(out.x.size());
    for (auto& v : residual) v = drawn();
    operands[1] = residual.data();
    product.operands = {operands, e.operands.size()};
    if (e.params) product.params = {&row_stride, 1};
    result.assign(out.x.size(), 0.0f);
    if (beside) product.result = result.data();
  }
  const std::vector<float>& operand_data(size_t k) const { return k == 0 ? bias : residual; }
};

}  // namespace facula::test
