// Products of tiles: the statement `tiles` of a nest, for matrix units that multiply tiles of 16-bit floats and add in float32, or
// multiply tiles of bytes and add in Int32.
//
//   tiles 5[p3] = 4[p0] * 1[p1] steps p2 parts 2 order 0*1 1*0, 0*0
//     32 x 32 elements of buffer 5 (float32, row by row, from element p3 on) become the product of a left and a right panel.
//     A panel consists of words (Int32) that hold two terms each as bfloat16, the first one in the lower half. It has `steps`
//     steps of 32 terms. A step has `parts` parts, such as the pieces of numbers that one bfloat16 cannot hold, and a part two
//     tiles:
//       left   [step][part][2][16 rows][16 words]
//       right  [step][part][2][16 words][16 columns]
//     Terms may stand in any order that both panels share.
//     Sums begin at zero. `order` lists phases, separated by commas; a phase runs over all steps, and at each step multiplies
//     the pairs left part * right part that it lists, in order.
//   tiles bytes 5[p3] = 4[p0] * 1[p1] steps p2 parts 1 order 0*0
//     The same for words of four bytes, those of the left panel without sign, those of the right panel with sign. Steps have 64
//     terms, and buffer 5 is Int32. Sums are exact modulo 2^32 (Intel's TDPBUSD).
//   tiles ... order 0*0 with i7 { ... }
//     Statements run once at each step of the last phase, i7, so that vectors work while the unit multiplies. The result is stored
//     after all of them, so they may read what it replaces.
//
// A tile's product is that of Intel's TDPBF16PS: for each element, one chain of fused multiplications and additions over the first
// terms of the 16 pairs and one over the second, both from zero; then the sum of both chains is added. Each result is rounded to
// nearest even. Subnormal operands count as zero, and subnormal results become zero.
//   Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "facula/base/dtype.h"

namespace facula::loop {

constexpr int64_t kTileRows = 16, kTileColumns = 16, kTileTerms = 32, kTilePairs = kTileTerms / 2;
constexpr int64_t kTileBlock = 32;  // rows and columns of the result: two tiles each
constexpr int64_t kTileWords = kTileRows * kTilePairs;
// Words of a part of a panel's step.
constexpr int64_t kPanelStep = 2 * kTileWords;
constexpr int64_t kStepWords = kTilePairs;  // words of a line of a panel (a row or a column) in one step
constexpr int64_t kWordBytes = 4;           // terms of a word of bytes

// The terms that a word holds.
enum class TileWords : uint8_t { bfloat16, bytes };

struct TileProduct {
  struct Pair {
    int left, right;  // parts
  };
  int left, right;  // buffers
  int parts;
  std::vector<std::vector<Pair>> phases;
  TileWords words = TileWords::bfloat16;

  // The result's dtype.
  DType dtype() const { return words == TileWords::bytes ? DType::Int32 : DType::Float32; }
};

// out[16][16] += left[16][16 words] * right[16 words][16], where rows of `out` are `stride` elements apart. Machine code for processors
// without a matrix unit calls it.
extern "C" void facula_multiply_tile(float* out, int64_t stride, const int32_t* left, const int32_t* right);
// The same for words of bytes.
extern "C" void facula_multiply_byte_tile(int32_t* out, int64_t stride, const int32_t* left,
                                          const int32_t* right);

// Calls f(pair, row tile, column tile) for the products of one step of a phase.
template <class F>
void each_tile(const std::vector<TileProduct::Pair>& phase, F&& f) {
  for (auto& pair : phase)
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) f(pair, i, j);
}

// Computes the statement. The elements of `out` are of type p.dtype().
void multiply_tiles(const TileProduct& p, const int32_t* left, const int32_t* right, int64_t steps,
                    void* out);

}  // namespace facula::loop
