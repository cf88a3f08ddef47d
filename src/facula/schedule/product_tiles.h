// Decides the sizes of tiles and blocks of a matrix product by a small model of registers and caches:
//   - a tile of the result stays in registers: as many sums as there are registers, less those that a step loads
//   - a panel of the right operand, a tile's width over a K block, stays in the first cache
//   - a block of the left operand over a K block stays in the second cache
//   - blocks of the result are small enough that every thread gets several of them
// The pieces of K depend on K alone, so the bits of a result do not depend on the number of threads.
#pragma once
#include <cstdint>

#include "facula/base/cache_sizes.h"

namespace facula::schedule {

struct ProductShape {
  int64_t m, n, k, count = 1;  // count: of products
};
struct ProductTiles {
  int rows = 0, vectors = 0;                  // of a tile
  int64_t terms = 0;                          // of a K block
  int64_t block_rows = 0, block_columns = 0;  // of a task
};

constexpr int64_t kMostTerms = 576;  // of a K block
// The number of terms of each K block but the last.
int64_t product_terms(int64_t k);
// `lanes`: elements of a vector; there are twice as many vector registers from 16 lanes of 32 bits on.
ProductTiles product_tiles(const ProductShape& s, int lanes, int threads, const CacheSizes& caches);

// The blocks of a product by tiles of 32 x 32 elements, which a matrix unit computes: rows and columns of a task, and terms of a K
// block, at least 512, which depend on K alone: sums are then no less exact than those of libraries. `parts`: of each number
// (device/cpu/tile_nest.h).
struct TileBlocks {
  int64_t rows, columns, terms;
  bool packs_right;  // each task packs the right operand's panels itself, instead of all before
};
// `packed`: the right operand is, already.
TileBlocks tile_blocks(const ProductShape& s, int parts, int threads, const CacheSizes& caches,
                       bool packed = false);
// Nanoseconds that one thread takes for such a product, by a model.
double tile_cost(const ProductShape& s, int parts, const CacheSizes& caches);
// It is at least this, which takes no search for blocks.
double least_tile_cost(const ProductShape& s, int parts);

}  // namespace facula::schedule
