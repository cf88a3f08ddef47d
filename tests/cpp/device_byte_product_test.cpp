// Products of bytes: the nest by the interpreter to the bit, and sums of matrices and windows against plain loops.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "facula/device/cpu/byte_nest.h"
#include "facula/device/cpu/byte_product.h"
#include "facula/schedule/lanes.h"
#include "facula/tensor/tensor.h"
#include "product_example.h"
#include "task_runs.h"

using namespace facula;
using namespace facula::device::cpu;
using test::coin, test::up_to;

namespace {

template <class T>
std::vector<T> drawn_bytes(int64_t n) {
  std::vector<T> x(static_cast<size_t>(n));
  for (auto& b : x) b = T(up_to(256) - 1);
  return x;
}

// A storage with these bytes.
Storage stored(const std::vector<int8_t>& x) {
  auto s = make_ref<StorageImpl>(x.size() + 1, Device{});
  if (!x.empty()) std::memcpy(s->data(), x.data(), x.size());
  return s;
}

TEST(ByteProduct, SumsMatricesExactly) {
  for (int round = 0; round < 20; ++round) {
    const int64_t m = up_to(40), n = up_to(90), k = up_to(round % 4 ? 70 : 700);
    const bool has_sign = coin(), by_columns = coin();
    const int32_t zero = int32_t(up_to(256)) - 1 - (has_sign ? 128 : 0);
    auto x = drawn_bytes<uint8_t>(m * k);
    auto w = drawn_bytes<int8_t>(n * k);
    auto storage = stored(w);
    std::vector<int32_t> out(size_t(m * n), -7);
    for (int again = 0; again < 3; ++again)
      byte_product(ByteMatrix{{x.data(), has_sign, zero}, m, k},
                   {static_cast<const int8_t*>(storage->data()), n, by_columns ? k : 1, by_columns ? 1 : n, 0,
                    storage.get()},
                   {out.data(), DType::Int32, nullptr, nullptr, false, 0});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        int32_t sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          int32_t a = has_sign ? int8_t(x[size_t(i * k + l)]) : x[size_t(i * k + l)];
          sum += (a - zero) * w[size_t(by_columns ? j * k + l : l * n + j)];
        }
        ASSERT_EQ(out[size_t(i * n + j)], sum) << i << ", " << j << " of " << m << "x" << k << "x" << n;
      }
  }
}

TEST(ByteProduct, SumsWindowsExactly) {
  for (int round = 0; round < 12; ++round) {
    ByteImages s{};
    s.n = up_to(2), s.h = 3 + up_to(6), s.w = 3 + up_to(6), s.c = up_to(9), s.kh = up_to(3), s.kw = up_to(3);
    for (int d = 0; d < 2; ++d)
      s.stride[d] = up_to(2), s.padding[d] = up_to(3) - 1,
      s.dilation[d] = up_to(2) > 1 && s.kh < 3 && s.kw < 3 ? 2 : 1;
    s.oh = (s.h + 2 * s.padding[0] - s.dilation[0] * (s.kh - 1) - 1) / s.stride[0] + 1;
    s.ow = (s.w + 2 * s.padding[1] - s.dilation[1] * (s.kw - 1) - 1) / s.stride[1] + 1;
    if (s.oh < 1 || s.ow < 1) continue;
    const bool has_sign = coin();
    const int32_t zero = int32_t(up_to(256)) - 1 - (has_sign ? 128 : 0);
    const int64_t o = up_to(40), taps = s.kh * s.kw;
    auto x = drawn_bytes<uint8_t>(s.n * s.h * s.w * s.c);
    auto w = drawn_bytes<int8_t>(o * s.c * taps);
    auto storage = stored(w);
    s.rows = {x.data(), has_sign, zero};
    std::vector<int32_t> out(size_t(s.n * s.oh * s.ow * o));
    byte_product(s, {static_cast<const int8_t*>(storage->data()), o, s.c * taps, taps, 1, storage.get()},
                 {out.data(), DType::Int32, nullptr, nullptr, false, 0});
    for (int64_t q = 0; q < s.n * s.oh * s.ow; ++q)
      for (int64_t j = 0; j < o; ++j) {
        int32_t sum = 0;
        for (int64_t tap = 0; tap < taps; ++tap) {
          int64_t y = q / s.ow % s.oh * s.stride[0] + tap / s.kw * s.dilation[0] - s.padding[0];
          int64_t z = q % s.ow * s.stride[1] + tap % s.kw * s.dilation[1] - s.padding[1];
          if (y < 0 || y >= s.h || z < 0 || z >= s.w) continue;
          for (int64_t c = 0; c < s.c; ++c) {
            uint8_t b = x[size_t(((q / (s.oh * s.ow) * s.h + y) * s.w + z) * s.c + c)];
            sum +=
                ((has_sign ? int32_t(int8_t(b)) : int32_t(b)) - zero) * w[size_t((j * s.c + c) * taps + tap)];
          }
        }
        ASSERT_EQ(out[size_t(q * o + j)], sum) << "window " << q << ", result " << j;
      }
  }
}

// The nest and the kernel by the interpreter, before and after it is lowered.
TEST(ByteNest, IsTheKernelToTheBit) {
  for (DType result : {DType::UInt8, DType::Int8, DType::Float32, DType::Int32})
    for (int lanes : {8, 16}) {
      using P = ByteParam;
      using B = ByteBuffer;
      ByteVariant v{3, 2, result, coin(), coin(), lanes};
      const int64_t words = 6, rows = 5, columns = 2 * lanes + 3, padded = 4 * lanes;
      std::vector<int64_t> params(P::count);
      params[P::words] = words, params[P::rows] = rows, params[P::columns] = columns;
      params[P::out_stride] = columns, params[P::zero_point] = 3, params[P::tasks] = 1;
      auto left = drawn_bytes<uint8_t>(6 * words * 4);
      auto right = drawn_bytes<int8_t>(padded * words * 4);
      std::vector<int32_t> corrections(static_cast<size_t>(padded));
      std::vector<float> scales(static_cast<size_t>(padded)), bias(scales.size());
      for (size_t j = 0; j < scales.size(); ++j)
        corrections[j] = int32_t(up_to(1000)), scales[j] = float(up_to(100)) * 1e-4f,
        bias[j] = float(up_to(9));
      auto filled = [&](loop::Nest n) {
        std::vector<uint8_t> out(size_t(rows * columns * itemsize(result)));
        std::vector<int32_t> tile(size_t(v.rows * v.vectors * lanes));
        void* buffers[B::count];
        buffers[B::left] = left.data(), buffers[B::right] = right.data();
        buffers[B::corrections] = corrections.data(), buffers[B::multiplier] = scales.data();
        buffers[B::bias] = bias.data(), buffers[B::out] = out.data(), buffers[B::tile] = tile.data();
        loop::interpret(n, buffers, params);
        return out;
      };
      loop::Nest nest = byte_nest(v).nest;
      EXPECT_EQ(print(loop::parse_nest(print(nest))), print(nest));
      loop::verify(nest);
      auto want = filled(nest);
      loop::LaneLimits limits{.lanes = lanes};
      loop::Nest lowered = schedule::in_lanes(nest, limits);
      loop::verify(lowered, limits);
      EXPECT_EQ(filled(lowered), want);
      if (lanes != codegen::vector_lanes()) continue;
      std::vector<uint8_t> out(want.size());
      std::vector<int32_t> tile(size_t(v.rows * v.vectors * lanes));
      void* buffers[B::count];
      buffers[B::left] = left.data(), buffers[B::right] = right.data();
      buffers[B::corrections] = corrections.data(), buffers[B::multiplier] = scales.data();
      buffers[B::bias] = bias.data(), buffers[B::out] = out.data(), buffers[B::tile] = tile.data();
      codegen::Status status;
      codegen::kernel(nest)->fn(buffers, params.data(), 0, 1, &status);
      EXPECT_EQ(out, want);
    }
}

}  // namespace
