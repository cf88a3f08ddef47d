#include <cmath>
#include <map>
#include <mutex>
#include <vector>

#include "facula/base/cache_sizes.h"
#include "facula/base/matrix_unit.h"
#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/named.h"
#include "facula/device/cpu/product_run.h"
#include "facula/device/cpu/tile_check.h"
#include "facula/device/cpu/tile_nest.h"
#include "facula/schedule/flatten.h"
#include "facula/tensor/tensor.h"

namespace facula::device::cpu {

namespace {

using schedule::ceil_div;
using P = ProductParam;
using B = ProductBuffer;
using TP = TileParam;
using TB = TileBuffer;

// Columns of the right operand as panels of tiles: their words, and behind them the ranges of their absolute values.
struct Panels {
  Panels(const GeneratedProduct& p, int parts, int64_t columns, int64_t block)
      : terms(block),
        count(ceil_div(columns, loop::kTileBlock)),
        steps(ceil_div(p.k, loop::kTileTerms)),
        batch(p.b.batch ? count * steps * parts * loop::kPanelStep : 0),
        matrices(p.b.batch ? p.count : 1),
        words(matrices * count * steps * parts * loop::kPanelStep),
        ranges_(matrices * count * ceil_div(p.k, terms) * kRange) {}
  size_t bytes() const { return size_t(words) * sizeof(int32_t) + size_t(ranges_) * sizeof(float); }
  void* ranges(void* memory) const { return static_cast<int32_t*>(memory) + words; }

  static constexpr int64_t kRange = 2;  // numbers of a K block of a panel
  int64_t terms;                        // of a K block
  int64_t count, steps;                 // panels of a matrix, and their steps
  int64_t batch;                        // words from matrix to matrix
  int64_t matrices, words;

 private:
  int64_t ranges_;  // numbers
};

const codegen::Kernel& kernel_of_pack(const TilePackVariant& v) {
  return kernel_of(v, [](const TilePackVariant& w) { return tile_pack_nest(w); });
}
void pack(const GeneratedProduct& p, int parts, const Panels& r, int64_t first, int64_t columns, void* to) {
  using Q = TilePackParam;
  const bool windows = p.windows && p.windows->side == Windows::right;
  auto& kernel = kernel_of_pack({p.b.adjacent, parts, p.operand_dtype, 0, windows});
  std::array<int64_t, Q::count> params{};
  params[Q::n] = columns, params[Q::k] = p.k, params[Q::stride] = p.b.stride, params[Q::batch] = p.b.batch;
  params[Q::out_batch] = r.batch, params[Q::panels] = r.count, params[Q::steps] = r.steps;
  params[Q::terms] = r.terms;
  params[Q::tasks] = r.matrices * r.count;
  int64_t from = windows ? 0 : first * (p.b.adjacent == Adjacent::row ? 1 : p.b.stride);
  void* buffers[] = {at(p.b.data, from, p.operand_dtype), to, r.ranges(to), nullptr};
  if (windows) {
    params[Q::first_panel] = first / loop::kTileBlock;
    params[Q::taps] = p.windows->taps, params[Q::channels] = p.windows->channels;
    params[Q::padded] = p.windows->padded;
    buffers[3] = const_cast<int32_t*>(p.windows->places);
  }
  each_task(params[Q::tasks], double(p.k) * double(loop::kTileBlock), [&](int64_t t) {
    codegen::Status status;
    kernel.fn(buffers, params.data(), t, t + 1, &status);
  });
}

// Multiplies tiles of numbers of many magnitudes by the unit and by the reference, and compares the bits.
bool is_as_described() {
  using namespace loop;
  constexpr int kParts = 2;
  constexpr int64_t kSteps = 3, kSize = kSteps * kParts * kPanelStep;
  std::vector<int32_t> left(kSize), right(kSize);
  uint32_t bits = 1;
  auto drawn = [&] {
    bits = bits * 1664525 + 1013904223;  // Numerical Recipes' generator
    BFloat16 x;
    x.bits = uint16_t(bits >> 16);
    return std::fabs(float(x)) < 1e17f ? x : BFloat16(1);  // sums stay finite
  };
  for (auto* panel : {&left, &right})
    for (auto& word : *panel) word = int32_t(drawn().bits | uint32_t(drawn().bits) << 16);
  return is_reference_product({0, 1, kParts, {{{0, 1}, {1, 0}}, {{0, 0}}}}, left, right, kSteps);
}

TileVariant variant_of(const GeneratedProduct& p, int parts, bool packs_right) {
  return {p.a.adjacent,
          packs_right ? p.b.adjacent : Adjacent::row,
          packs_right,
          parts,
          p.alpha != 1 || p.beta != 0,
          form_of(p),
          0,
          p.windows ? p.windows->side : Windows::none};
}
const TaskKernel& kernel_of_tiles(const TileVariant& v) {
  return task_kernel_of(v, [](const TileVariant& w) { return tile_nest(w); });
}

// `packed`: the right operand is packed before.
schedule::TileBlocks blocks_of(const GeneratedProduct& p, int parts, bool packed) {
  auto blocks = schedule::tile_blocks({p.m, p.n, p.k, p.count}, parts, num_threads(), cache_sizes(), packed);
  if (!p.windows || p.windows->side != Windows::left) return blocks;
  const int64_t taps = std::max<int64_t>(1, (blocks.terms + p.windows->padded / 2) / p.windows->padded);
  blocks.terms = ceil_div(p.windows->taps, ceil_div(p.windows->taps, taps)) * p.windows->padded;
  return blocks;
}

}  // namespace

bool has_tile_kernels(const GeneratedProduct& p, int parts) {
  using Variants = std::pair<TileVariant, TilePackVariant>;
  static std::map<Variants, bool> available;
  static TableMutex mutex;
  auto blocks = blocks_of(p, parts, p.windows != nullptr);
  const bool right = p.windows && p.windows->side == Windows::right;
  Variants v{variant_of(p, parts, blocks.packs_right), {p.b.adjacent, parts, p.operand_dtype, 0, right}};
  std::lock_guard lock(mutex);
  auto [it, fresh] = available.try_emplace(v);
  if (fresh)
    it->second =
        has_kernel(tile_nest(v.first).nest) && (blocks.packs_right || has_kernel(tile_pack_nest(v.second)));
  return it->second;
}

void run_by_tiles(const GeneratedProduct& p, int parts) {
  if (p.m == 0 || p.n == 0 || p.count == 0) return;
  internal_check(p.k > 0 && parts > 0 && parts <= kMostParts)
      << "a product of " << p.m << "x" << p.k << "x" << p.n << " by " << parts << " parts";
  auto blocks = blocks_of(p, parts, p.windows != nullptr);
  const Panels all(p, parts, p.n, blocks.terms);
  const Storage retained = retained_pack(p, Packing::tiles, parts, all.bytes(),
                                         [&](void* to) { pack(p, parts, all, 0, p.n, to); });
  if (retained) blocks = blocks_of(p, parts, true);
  auto& kernel = kernel_of_tiles(variant_of(p, parts, blocks.packs_right));
  if (codegen::records_kernels() && !p.windows) {  // for other numbers of threads and other sizes, too
    kernel_of_tiles(variant_of(p, parts, !blocks.packs_right));
    kernel_of_pack({p.b.adjacent, parts, p.operand_dtype});
  }
  const double each = double(blocks.rows) * double(blocks.columns) * double(p.k);
  auto multiply = [&](int64_t first, int64_t columns, const Panels* panels, void* memory) {
    Buffers buffers{};
    Params params{};
    float numbers[2];
    set_product(p, {blocks.rows, blocks.columns, blocks.terms}, first, columns, numbers, TB::count, TP::count,
                buffers, params);
    params[TP::right_row] = p.b.adjacent == Adjacent::row ? p.b.stride : 1;
    params[TP::right_column] = p.b.adjacent == Adjacent::row ? 1 : p.b.stride;
    params[TP::right_batch] = p.b.batch;
    buffers[TB::right] = at(p.b.data, first * params[TP::right_column], p.operand_dtype);
    if (p.windows) {
      params[TP::taps] = p.windows->taps, params[TP::channels] = p.windows->channels;
      params[TP::padded] = p.windows->padded;
      buffers[TB::places] = const_cast<int32_t*>(p.windows->places);
      if (p.windows->side == Windows::right) buffers[TB::right] = at(p.b.data, 0, p.operand_dtype);
    }
    if (panels) {
      params[P::b_batch] = panels->batch;
      params[TP::steps] = panels->steps, params[TP::panels] = panels->count;
      buffers[B::b] = memory, buffers[TB::range_right] = panels->ranges(memory);
    }
    run_tasks(kernel, buffers, params, each, params[P::tasks]);
  };
  if (retained) return multiply(0, p.n, &all, retained->data());
  if (blocks.packs_right) return multiply(0, p.n, nullptr, nullptr);
  constexpr int64_t kMostPanels =
      2 * kMostPacked;  // bytes, because parts take half as much again as the numbers
  const int64_t panel = ceil_div(p.k, loop::kTileTerms) * parts * loop::kPanelStep *
                        int64_t(sizeof(int32_t)) * (p.b.batch ? p.count : 1);
  const int64_t panels = ceil_div(p.n, loop::kTileBlock), pieces = ceil_div(panels * panel, kMostPanels);
  const int64_t most = ceil_div(panels, std::min(pieces, panels)) * loop::kTileBlock;
  for (int64_t first = 0; first < p.n; first += most) {
    const int64_t columns = std::min(most, p.n - first);
    const Panels some(p, parts, columns, blocks.terms);
    auto memory = make_ref<StorageImpl>(some.bytes(), Device{});
    pack(p, parts, some, first, columns, memory->data());
    multiply(first, columns, &some, memory->data());
  }
}

bool multiplies_tiles() {
  static const bool right = has_matrix_unit() && is_as_described();
  return right;
}

}  // namespace facula::device::cpu
