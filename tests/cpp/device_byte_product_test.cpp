// Products of bytes, by vectors and by a matrix unit or its reference: the nests by the interpreter to the bit, and sums of matrices and
// windows against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "facula/base/matrix_unit.h"
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

constexpr ByteWay kWays[] = {ByteWay::vectors, ByteWay::tiles};

// Bytes of all values, or of the largest sizes alone.
template <class T>
std::vector<T> drawn_bytes(int64_t n) {
  constexpr int kExtremes[] = {0, 127, 128, 255};
  const bool extreme = up_to(4) == 1;
  std::vector<T> x(static_cast<size_t>(n));
  for (auto& b : x) b = T(extreme ? kExtremes[up_to(4) - 1] : int(up_to(256) - 1));
  return x;
}
// A zero point, often the smallest or the largest one.
int32_t drawn_zero(bool has_sign) {
  constexpr int kEnds[] = {0, 255};
  return int32_t(coin() ? kEnds[up_to(2) - 1] : up_to(256) - 1) - (has_sign ? 128 : 0);
}

// A storage with these bytes.
Storage stored(const std::vector<int8_t>& x) {
  auto s = make_ref<StorageImpl>(x.size() + 1, Device{});
  if (!x.empty()) std::memcpy(s->data(), x.data(), x.size());
  return s;
}

// The reference of one tile, without and with what is in the result.
TEST(ByteTile, AddsProductsModulo32Bits) {
  auto left = drawn_bytes<uint8_t>(1024);
  auto right = drawn_bytes<int8_t>(1024);
  std::vector<int32_t> x(256), y(256), out(256), expected(256);
  std::memcpy(x.data(), left.data(), left.size()), std::memcpy(y.data(), right.data(), right.size());
  for (auto& sum : out) sum = coin() ? std::numeric_limits<int32_t>::max() : -int32_t(up_to(1000));
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 16; ++j) {
      int64_t sum = out[i * 16 + j];
      for (size_t k = 0; k < 64; ++k) sum += left[i * 64 + k] * right[(k / 4 * 16 + j) * 4 + k % 4];
      expected[i * 16 + j] = int32_t(uint32_t(sum));
    }
  loop::facula_multiply_byte_tile(out.data(), 16, x.data(), y.data());
  EXPECT_EQ(out, expected);
}

TEST(ByteTile, IsWhatTheUnitComputes) { EXPECT_EQ(multiplies_byte_tiles(), has_byte_matrix_unit()); }

TEST(ByteTile, GoesToInt32) {
  loop::Nest n = byte_nest(byte_tile_variant(16)).nest;
  n.buffers[ByteBuffer::tile].dtype = DType::Float32;
  EXPECT_THROW(loop::verify(n), Error);
}

TEST(ByteProduct, SumsMatricesExactly) {
  for (int round = 0; round < 40; ++round) {
    const int64_t m = round % 5 ? up_to(80) : 1, n = up_to(90), k = up_to(round % 4 ? 140 : 700);
    const bool has_sign = coin(), by_columns = coin();
    const int32_t zero = drawn_zero(has_sign);
    auto x = drawn_bytes<uint8_t>(m * k);
    auto w = drawn_bytes<int8_t>(n * k);
    auto storage = stored(w);
    std::vector<int32_t> out(size_t(m * n));
    for (int again = 0; again < 3; ++again) {  // packed for the call, packed and retained, retained
      std::ranges::fill(out, -7);
      byte_product(ByteMatrix{{x.data(), has_sign, zero}, m, k},
                   {static_cast<const int8_t*>(storage->data()), n, by_columns ? k : 1, by_columns ? 1 : n, 0,
                    storage.get()},
                   {out.data(), DType::Int32, nullptr, nullptr, false, 0}, kWays[round % 2]);
    }
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
  for (int round = 0; round < 24; ++round) {
    ByteImages s{};
    s.n = up_to(2), s.h = 3 + up_to(6), s.w = 3 + up_to(6), s.c = up_to(round % 3 ? 9 : 140), s.kh = up_to(3),
    s.kw = up_to(3);
    for (int d = 0; d < 2; ++d)
      s.stride[d] = up_to(2), s.padding[d] = up_to(3) - 1,
      s.dilation[d] = up_to(2) > 1 && s.kh < 3 && s.kw < 3 ? 2 : 1;
    s.oh = (s.h + 2 * s.padding[0] - s.dilation[0] * (s.kh - 1) - 1) / s.stride[0] + 1;
    s.ow = (s.w + 2 * s.padding[1] - s.dilation[1] * (s.kw - 1) - 1) / s.stride[1] + 1;
    if (s.oh < 1 || s.ow < 1) continue;
    const bool has_sign = coin();
    const int32_t zero = drawn_zero(has_sign);
    const int64_t o = up_to(40), taps = s.kh * s.kw;
    auto x = drawn_bytes<uint8_t>(s.n * s.h * s.w * s.c);
    auto w = drawn_bytes<int8_t>(o * s.c * taps);
    auto storage = stored(w);
    s.rows = {x.data(), has_sign, zero};
    std::vector<int32_t> out(size_t(s.n * s.oh * s.ow * o));
    byte_product(s, {static_cast<const int8_t*>(storage->data()), o, s.c * taps, taps, 1, storage.get()},
                 {out.data(), DType::Int32, nullptr, nullptr, false, 0}, kWays[round % 2]);
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

// One task: its operands, and memory of its results.
struct ByteTaskExample {
  ByteVariant v;
  int64_t rows, columns;
  std::vector<int64_t> params = std::vector<int64_t>(ByteParam::count);
  std::vector<uint8_t> left, out;
  std::vector<int8_t> right;
  std::vector<int32_t> corrections, tile;
  std::vector<float> scales, bias;

  ByteTaskExample(const ByteVariant& v, int64_t rows, int64_t columns, int64_t words)
      : v(v), rows(rows), columns(columns) {
    using P = ByteParam;
    params[P::words] = words, params[P::rows] = rows, params[P::columns] = columns;
    params[P::out_stride] = columns, params[P::zero_point] = 3, params[P::tasks] = 1;
    const int64_t tiles = (rows + v.rows - 1) / v.rows, strips = (columns + v.width() - 1) / v.width();
    left = drawn_bytes<uint8_t>(tiles * v.rows * words * 4);
    right = drawn_bytes<int8_t>(strips * v.width() * words * 4);
    for (int64_t j = 0; j < strips * v.width(); ++j) {
      corrections.push_back(int32_t(up_to(1000))), scales.push_back(float(up_to(100)) * 1e-4f);
      bias.push_back(float(up_to(9)));
    }
  }
  template <class Run>
  std::vector<uint8_t> filled(Run run) {
    using B = ByteBuffer;
    out.assign(size_t(rows * columns * itemsize(v.result)), 0),
        tile.assign(size_t(2 * v.rows * v.width()), 0);
    void* buffers[B::count];
    buffers[B::left] = left.data(), buffers[B::right] = right.data();
    buffers[B::corrections] = corrections.data(), buffers[B::multiplier] = scales.data();
    buffers[B::bias] = bias.data(), buffers[B::out] = out.data(), buffers[B::tile] = tile.data();
    run(buffers);
    return out;
  }
};

// By the interpreter, before and after the nest is lowered, and by the kernel.
void expect_same_bits(const ByteVariant& v, int64_t rows, int64_t columns, int64_t words) {
  ByteTaskExample e(v, rows, columns, words);
  auto interpreted = [&](const loop::Nest& n) {
    return e.filled([&](void** buffers) { loop::interpret(n, {buffers, ByteBuffer::count}, e.params); });
  };
  loop::Nest nest = byte_nest(v).nest;
  EXPECT_EQ(print(loop::parse_nest(print(nest))), print(nest));
  loop::verify(nest);
  auto want = interpreted(nest);
  loop::LaneLimits limits{.lanes = v.lanes};
  loop::Nest lowered = schedule::in_lanes(nest, limits);
  loop::verify(lowered, limits);
  EXPECT_EQ(interpreted(lowered), want);
  if (v.lanes != codegen::vector_lanes()) return;
  codegen::Status status;
  EXPECT_EQ(e.filled(
                [&](void** buffers) { codegen::kernel(nest)->fn(buffers, e.params.data(), 0, 1, &status); }),
            want);
}

TEST(ByteNest, IsTheKernelToTheBit) {
  for (DType result : {DType::UInt8, DType::Int8, DType::Float32, DType::Int32})
    for (int lanes : {8, 16}) {
      ASSERT_NO_FATAL_FAILURE(expect_same_bits({3, 2, result, coin(), coin(), lanes}, 5, 2 * lanes + 3, 6));
      ByteVariant tiles = byte_tile_variant(lanes);
      tiles.result = result, tiles.bias = coin(), tiles.relu = coin();
      ASSERT_NO_FATAL_FAILURE(expect_same_bits(tiles, 37, 45, 32));
    }
}

// Results of any dtype by vectors and by tiles.
TEST(ByteProduct, HasTheSameBitsByVectorsAndByTiles) {
  for (DType result : {DType::UInt8, DType::Int8, DType::Float32, DType::Int32})
    for (bool has_sign : {false, true}) {
      const int64_t m = up_to(100), n = up_to(100), k = up_to(300);
      auto x = drawn_bytes<uint8_t>(m * k);
      auto w = drawn_bytes<int8_t>(n * k);
      auto storage = stored(w);
      std::vector<float> scales(static_cast<size_t>(n)), bias(scales.size());
      for (size_t j = 0; j < scales.size(); ++j)
        scales[j] = float(up_to(1000)) * 1e-5f, bias[j] = float(up_to(40)) - 20;
      const bool relu = coin(), has_bias = coin();
      const int32_t zero = drawn_zero(has_sign);
      auto computed = [&](ByteWay way) {
        std::vector<uint8_t> out(size_t(m * n * itemsize(result)));
        byte_product(ByteMatrix{{x.data(), has_sign, zero}, m, k},
                     {static_cast<const int8_t*>(storage->data()), n, k, 1, 0, storage.get()},
                     {out.data(), result, scales.data(), has_bias ? bias.data() : nullptr, relu, 7}, way);
        return out;
      };
      EXPECT_EQ(computed(ByteWay::tiles), computed(ByteWay::vectors)) << m << "x" << k << "x" << n;
    }
}

}  // namespace
