#include "facula/schedule/product_tiles.h"

#include <algorithm>
#include <cmath>

#include "facula/loop/tiles.h"
#include "facula/schedule/flatten.h"

namespace facula::schedule {

namespace {

constexpr int64_t kTerms = kMostTerms / 3 * 2;  // of a K block, about: a panel of 16 columns takes 24 KiB
constexpr int64_t kTermsStep = 8;               // K blocks begin at multiples of it
constexpr int64_t kColumns =
    2048;  // of a block of the result, at most: rows of the left operand are packed once for each
constexpr int64_t kBlocks = 4;     // blocks for each thread
constexpr int64_t kElement = 4;    // bytes
constexpr int64_t kTileBytes = 2;  // of an element of a tile

// A length of at most `most`, a multiple of `step`, that divides `size` into nearly equal pieces.
int64_t even_piece(int64_t size, int64_t most, int64_t step) {
  int64_t pieces = std::max<int64_t>(1, ceil_div(size, std::max(most / step * step, step)));
  return ceil_div(ceil_div(size, pieces), step) * step;
}

// The height of tiles that wastes the fewest rows, the largest one that fits in registers if in doubt.
int tile_rows(int64_t m, int most) {
  int best = most;
  auto cost = [&](int rows) {
    // A step of a tile costs its multiplications, and about one more row for what it loads.
    return double(ceil_div(m, rows)) * (rows + 0.5);
  };
  for (int rows = most - 1; rows >= most / 2; --rows)
    if (cost(rows) < cost(best) * 0.97) best = rows;
  return best;
}

}  // namespace

int64_t product_terms(int64_t k) {
  int64_t blocks = std::max<int64_t>(1, (k + kTerms / 2) / kTerms);
  return std::max<int64_t>(1, ceil_div(ceil_div(k, blocks), kTermsStep) * kTermsStep);
}

ProductTiles product_tiles(const ProductShape& s, int lanes, int threads, const CacheSizes& caches) {
  ProductTiles t;
  bool many = lanes >= 16;  // 32 registers
  t.vectors = 2;
  t.rows = tile_rows(s.m, many ? 14 : 6);
  t.terms = product_terms(s.k);
  int64_t width = int64_t(t.vectors) * lanes;
  int64_t rows = caches.second / 3 / (t.terms * kElement);
  t.block_rows = even_piece(s.m, std::max<int64_t>(rows, t.rows), t.rows);
  t.block_columns = even_piece(s.n, kColumns, width);
  // Few blocks: halve the longer side as long as it has more than a few tiles.
  auto blocks = [&] { return s.count * ceil_div(s.m, t.block_rows) * ceil_div(s.n, t.block_columns); };
  while (threads > 1 && blocks() < kBlocks * threads) {
    if (t.block_columns > 4 * width && t.block_columns >= t.block_rows)
      t.block_columns = even_piece(t.block_columns, t.block_columns / 2, width);
    else if (t.block_rows > 4 * t.rows) t.block_rows = even_piece(t.block_rows, t.block_rows / 2, t.rows);
    else if (t.block_columns > 4 * width)
      t.block_columns = even_piece(t.block_columns, t.block_columns / 2, width);
    else break;
  }
  return t;
}

namespace {

// Nanoseconds, measured on an Emerald Rapids processor.
constexpr double kTileTerm[] = {0, 1.2e-3, 3.6e-3, 5.6e-3};  // of a multiplication and its addition, by parts
// Packing an element of the left and of the right operand, by parts; about twice as long where words are turned in registers.
constexpr double kTileLeft[] = {0, 0.2, 0.35, 0.4};
constexpr double kTileRight[] = {0, 0.25, 0.45, 0.5};
constexpr double kTileAdd = 0.15;  // of adding the sum of a K block to an element
constexpr double kTileFar =
    0.3;  // of writing and reading a packed element that the caches near a core do not hold
constexpr double kTileStart = 3e3;  // of packing before the tasks begin

double time_of(const ProductShape& s, const TileBlocks& b, int parts, int threads, bool packed) {
  double rows = double(b.rows), columns = double(b.columns),
         terms = double(ceil_div(s.k, loop::kTileBlock) * loop::kTileBlock);
  double left = kTileLeft[parts] * terms, right = kTileRight[parts] * terms;
  double far = kTileFar * double(parts) * terms;
  double task =
      rows * columns * (terms * kTileTerm[parts] + double(ceil_div(s.k, b.terms)) * kTileAdd) + rows * left;
  if (b.packs_right) task += columns * right;
  int64_t tasks = s.count * ceil_div(s.m, b.rows) * ceil_div(s.n, b.columns);
  double time = task * double(ceil_div(tasks, threads));
  if (b.packs_right || packed) return time;
  return time + kTileStart + double(s.n) * double(s.count) * (right + far) / threads;
}

}  // namespace

TileBlocks tile_blocks(const ProductShape& s, int parts, int threads, const CacheSizes& caches, bool packed) {
  constexpr int64_t kMostColumns = 2048, kLeastTerms = 512, kMostTileTerms = 2048;
  constexpr int64_t kDivisions[] = {1, 2, 4, 8};  // of blocks, for threads
  TileBlocks best{};
  // A block's sum is a chain of additions, one for each 32 terms, and so is that of the blocks. Sums of blocks have errors that cancel
  // each other in part, so fewer blocks are best: the cubic root of twice the number of such steps. Panels of more than 2048 terms
  // leave no room for rows, and the right operand would be read again for each few of them.
  const double blocks = std::cbrt(2.0 * double(s.k) / loop::kTileBlock);
  best.terms = even_piece(s.k, std::clamp(int64_t(double(s.k) / blocks), kLeastTerms, kMostTileTerms),
                          loop::kTileBlock);
  // The rows of a block over a K block and a panel stay in the second cache.
  constexpr double kShare = 0.6;
  const double row = double(best.terms) * parts * kTileBytes;
  const int64_t rows = int64_t(kShare * double(caches.second) / row);
  const int64_t most_rows = std::min(std::max(rows, 2 * loop::kTileBlock), s.m);
  double least = 0;
  for (int64_t i : kDivisions)
    for (int64_t j : kDivisions)
      for (bool packs_right : {true, false}) {
        TileBlocks b{even_piece(s.m, most_rows / i, loop::kTileBlock),
                     even_piece(s.n, std::min(kMostColumns, s.n) / j, loop::kTileBlock), best.terms,
                     packs_right};
        if (packed && packs_right) continue;
        double time = time_of(s, b, parts, threads, packed);
        if (least == 0 || time < least) best = b, least = time;
      }
  return best;
}

double least_tile_cost(const ProductShape& s, int parts) {
  double m = double(s.m), n = double(s.n);
  double terms = double(ceil_div(s.k, loop::kTileBlock) * loop::kTileBlock);
  double elements = m * n * (terms * kTileTerm[parts] + kTileAdd);
  return double(s.count) * (elements + terms * (m * kTileLeft[parts] + n * kTileRight[parts]));
}

double tile_cost(const ProductShape& s, int parts, const CacheSizes& caches) {
  return time_of(s, tile_blocks(s, parts, 1, caches), parts, 1, false);
}

}  // namespace facula::schedule
