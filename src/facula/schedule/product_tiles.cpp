#include "facula/schedule/product_tiles.h"

#include <algorithm>

#include "facula/schedule/flatten.h"

namespace facula::schedule {

namespace {

constexpr int64_t kTerms = kMostTerms / 3 * 2;  // of a K block, about: a panel of 16 columns takes 24 KiB
constexpr int64_t kTermsStep = 8;               // K blocks begin at multiples of it
constexpr int64_t kColumns =
    2048;  // of a block of the result, at most: rows of the left operand are packed once for each
constexpr int64_t kBlocks = 4;   // blocks for each thread
constexpr int64_t kElement = 4;  // bytes

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

TileBlocks tile_blocks(const ProductShape& s, int threads) {
  constexpr int64_t kSide = 32, kMostRows = 512, kMostColumns = 256, kBlockTerms = 512;
  TileBlocks t;
  t.terms = even_piece(s.k, kBlockTerms, kSide);
  t.rows = even_piece(s.m, kMostRows, kSide);
  t.columns = even_piece(s.n, kMostColumns, kSide);
  auto blocks = [&] { return s.count * ceil_div(s.m, t.rows) * ceil_div(s.n, t.columns); };
  while (threads > 1 && blocks() < kBlocks * threads && std::max(t.rows, t.columns) > 2 * kSide) {
    if (t.columns >= t.rows) t.columns = even_piece(t.columns, t.columns / 2, kSide);
    else t.rows = even_piece(t.rows, t.rows / 2, kSide);
  }
  return t;
}

}  // namespace facula::schedule
