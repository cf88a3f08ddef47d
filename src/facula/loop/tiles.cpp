#include "facula/loop/tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace facula::loop {

namespace {

// The bfloat16 in the lower (0) or upper half of a word.
float term(int32_t word, int half) {
  return std::bit_cast<float>(half ? uint32_t(word) & 0xffff0000u : uint32_t(word) << 16);
}
// The number, or a zero of its sign if it is subnormal.
float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

}  // namespace

extern "C" void facula_multiply_tile(float* out, int64_t stride, const int32_t* left, const int32_t* right) {
  for (int64_t r = 0; r < kTileRows; ++r)
    for (int64_t c = 0; c < kTileColumns; ++c) {
      float chains[2] = {};
      for (int64_t pair = 0; pair < kTilePairs; ++pair)
        for (int h = 0; h < 2; ++h) {
          float x = flushed(term(left[r * kTilePairs + pair], h));
          float y = flushed(term(right[pair * kTileColumns + c], h));
          chains[h] = flushed(std::fma(x, y, chains[h]));
        }
      float& to = out[r * stride + c];
      to = flushed(to + flushed(chains[0] + chains[1]));
    }
}

extern "C" void facula_multiply_byte_tile(int32_t* out, int64_t stride, const int32_t* left,
                                          const int32_t* right) {
  for (int64_t r = 0; r < kTileRows; ++r)
    for (int64_t c = 0; c < kTileColumns; ++c) {
      auto sum = uint32_t(out[r * stride + c]);
      for (int64_t w = 0; w < kTilePairs; ++w) {
        auto x = uint32_t(left[r * kTilePairs + w]), y = uint32_t(right[w * kTileColumns + c]);
        for (int k = 0; k < kWordBytes; ++k)
          sum += uint32_t(int32_t(uint8_t(x >> 8 * k)) * int32_t(int8_t(y >> 8 * k)));
      }
      out[r * stride + c] = int32_t(sum);
    }
}

namespace {

template <class T, class Multiply>
void multiply_each(const TileProduct& p, const int32_t* left, const int32_t* right, int64_t steps, T* out,
                   Multiply multiply) {
  std::fill_n(out, kTileBlock * kTileBlock, T(0));
  for (auto& phase : p.phases)
    for (int64_t s = 0; s < steps; ++s)
      each_tile(phase, [&](const TileProduct::Pair& pair, int i, int j) {
        auto tile = [&](const int32_t* panel, int part, int k) {
          return panel + (s * p.parts + part) * kPanelStep + k * kTileWords;
        };
        multiply(out + (i * kTileRows * kTileBlock + j * kTileColumns), kTileBlock, tile(left, pair.left, i),
                 tile(right, pair.right, j));
      });
}

}  // namespace

void multiply_tiles(const TileProduct& p, const int32_t* left, const int32_t* right, int64_t steps,
                    void* out) {
  if (p.words == TileWords::bytes)
    multiply_each(p, left, right, steps, static_cast<int32_t*>(out), facula_multiply_byte_tile);
  else multiply_each(p, left, right, steps, static_cast<float*>(out), facula_multiply_tile);
}

}  // namespace facula::loop
