#include "facula/loop/tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace facula::loop {

namespace {

// The number, or a zero of its sign if it is subnormal.
float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

}  // namespace

extern "C" void facula_multiply_tile(float* out, int64_t stride, const BFloat16* left,
                                     const BFloat16* right) {
  for (int64_t r = 0; r < kTileRows; ++r)
    for (int64_t c = 0; c < kTileColumns; ++c) {
      float chains[2] = {};
      for (int64_t pair = 0; pair < kTilePairs; ++pair)
        for (int64_t h = 0; h < 2; ++h) {
          float x = flushed(left[r * kTileTerms + pair * 2 + h]);
          float y = flushed(right[(pair * kTileColumns + c) * 2 + h]);
          chains[h] = flushed(std::fma(x, y, chains[h]));
        }
      float& to = out[r * stride + c];
      to = flushed(to + flushed(chains[0] + chains[1]));
    }
}

void multiply_tiles(const TileProduct& p, const BFloat16* left, const BFloat16* right, int64_t steps,
                    float* out) {
  std::fill_n(out, kTileBlock * kTileBlock, 0.0f);
  for (auto& phase : p.phases)
    for (int64_t s = 0; s < steps; ++s)
      each_tile(phase, [&](const TileProduct::Pair& pair, int i, int j) {
        auto tile = [&](const BFloat16* panel, int part, int k) {
          return panel + (s * p.parts + part) * kPanelStep + k * kTileElements;
        };
        facula_multiply_tile(out + (i * kTileRows * kTileBlock + j * kTileColumns), kTileBlock,
                             tile(left, pair.left, i), tile(right, pair.right, j));
      });
}

}  // namespace facula::loop
