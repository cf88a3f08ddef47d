#include "facula/schedule/product_choice.h"

#include <algorithm>

#include "facula/schedule/flatten.h"

namespace facula::schedule {

namespace {

// Nanoseconds, measured on an Emerald Rapids processor, for AVX2 with OpenBLAS's kernels for it and for AVX-512 with oneDNN's.
struct Speeds {
  double generated, library;  // of a multiplication and its addition
};
constexpr Speeds kNarrow{2 / 92.0, 2 / 84.0}, kWide{2 / 180.0, 2 / 167.0};
constexpr double kPack = 0.35;       // packing an element of the right operand
constexpr double kRead = 0.23;       // what a library spends on such an element
constexpr double kPackLeft = 0.3;    // packing an element of the left operand, once for each block of columns
constexpr double kAddNear = 0.3;     // adding the sum of a K block to an element that the second cache holds
constexpr double kAddFar = 1.0;      // and to one that it does not
constexpr double kPass = 0.3;        // reading and writing an element once more, in a separate kernel
constexpr double kAdvantage = 0.95;  // generated / library from which the model is believed
// The unit runs at half of its speed or less while other users of the processor need its power, and vectors at three quarters of theirs,
// so tiles are taken only where they are clearly faster.
constexpr double kTileAdvantage = 0.8;
// For convolutions the model sees neither the packing of windows, pixel by pixel, nor Winograd's method, by which libraries need fewer
// multiplications. ResNet-18 of 4x224x224 took 1.6 times as long by six products of tiles at half speed, and as long at full speed.
constexpr double kWindowAdvantage = 0.5;

const Speeds& speeds_of(int lanes) { return lanes >= 16 ? kWide : kNarrow; }

double library_cost_of_one(const ProductShape& s, bool epilogue, int lanes) {
  double m = double(s.m), n = double(s.n), k = double(s.k);
  return m * n * k * speeds_of(lanes).library + n * k * kRead + (epilogue ? m * n * kPass : 0);
}

}  // namespace

ProductCosts product_costs(const ProductShape& s, bool epilogue, int lanes, const CacheSizes& caches) {
  const Speeds& speed = speeds_of(lanes);
  ProductTiles t = product_tiles(s, lanes, 1, caches);
  double m = double(s.m), n = double(s.n), k = double(s.k), count = double(s.count);
  auto padded = [](int64_t size, int64_t piece) { return double(ceil_div(size, piece) * piece); };
  double terms = padded(s.m, t.rows) * padded(s.n, t.vectors * lanes) * k;
  bool far = m * n * double(sizeof(float)) > double(caches.second);
  double adds = m * n * double(ceil_div(s.k, t.terms));
  double generated = terms * speed.generated + n * k * kPack +
                     m * k * double(ceil_div(s.n, t.block_columns)) * kPackLeft +
                     adds * (far ? kAddFar : kAddNear);
  return {count * generated, count * library_cost_of_one(s, epilogue, lanes)};
}

bool prefers_generated(const ProductShape& s, bool epilogue, int lanes, const CacheSizes& caches) {
  auto costs = product_costs(s, epilogue, lanes, caches);
  return costs.generated < kAdvantage * costs.library;
}

bool prefers_tiles(const ProductShape& s, int parts, int lanes, const CacheSizes& caches, bool windows) {
  const double advantage = windows ? kWindowAdvantage : kTileAdvantage;
  auto pays = [&, cost = least_tile_cost(s, parts)](double other) { return cost < advantage * other; };
  if (!pays(double(s.count) * library_cost_of_one(s, false, lanes)))
    return false;  // most small products end here
  auto costs = product_costs(s, false, lanes, caches);
  double other = std::min(costs.generated, costs.library);
  return pays(other) && tile_cost(s, parts, caches) < advantage * other;
}

}  // namespace facula::schedule
