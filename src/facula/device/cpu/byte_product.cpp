#include "facula/device/cpu/byte_product.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "facula/base/cache_sizes.h"
#include "facula/base/matrix_unit.h"
#include "facula/device/cpu/byte_nest.h"
#include "facula/device/cpu/onednn.h"
#include "facula/device/cpu/product_run.h"
#include "facula/device/cpu/tile_check.h"
#include "facula/loop/tiles.h"
#include "facula/schedule/flatten.h"
#include "facula/tensor/derived.h"

namespace facula::device::cpu {

namespace {

using schedule::ceil_div;
using P = ByteParam;
using B = ByteBuffer;

constexpr int64_t kWord = loop::kWordBytes;
constexpr uint32_t kSigns = 0x80808080;

// The right operand as strips of words, and behind them the sum of each column.
struct PackedWeight {
  int64_t words, strips;  // of a column; of `lanes` columns each
  int64_t lanes;
  bool tiles;  // two strips are a panel
  int64_t place(int64_t strip, int64_t word) const {
    if (!tiles) return (strip * words + word) * lanes;
    return strip / 2 * words * loop::kTileBlock + word / loop::kStepWords * loop::kPanelStep +
           strip % 2 * loop::kTileWords + word % loop::kStepWords * lanes;
  }
  size_t bytes() const { return size_t(strips * lanes * (words + 1)) * sizeof(int32_t); }
  const int32_t* sums(const void* memory) const {
    return static_cast<const int32_t*>(memory) + strips * lanes * words;
  }
};

// `terms`: of each of the taps, which begin a word each.
void pack(const ByteWeight& b, int64_t taps, int64_t terms, const PackedWeight& form, void* to) {
  auto* words = static_cast<int32_t*>(to);
  auto* sums = words + form.strips * form.lanes * form.words;
  const int64_t tap_words = ceil_div(terms, kWord);
  each_task(form.strips, double(form.words * form.lanes * kWord), [&](int64_t strip) {
    for (int64_t lane = 0; lane < form.lanes; ++lane) {
      const int64_t column = strip * form.lanes + lane;
      int64_t word = 0;
      int32_t sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t w = 0; w < tap_words; ++w, ++word) {
          int8_t four[kWord] = {};
          const int64_t count = column < b.columns ? std::min(kWord, terms - w * kWord) : 0;
          const int8_t* from =
              b.data + column * b.column_stride + tap * b.tap_stride + w * kWord * b.term_stride;
          for (int64_t k = 0; k < count; ++k) sum += four[k] = from[k * b.term_stride];
          std::memcpy(words + form.place(strip, word) + lane, four, sizeof four);
        }
      for (; word < form.words; ++word) words[form.place(strip, word) + lane] = 0;
      sums[column] = sum;
    }
  });
}

Storage packed_weight(const ByteWeight& b, int64_t taps, int64_t terms, const PackedWeight& form) {
  auto fill = [&](void* to) { pack(b, taps, terms, form, to); };
  const int64_t key[] = {reinterpret_cast<const char*>(b.data) - static_cast<const char*>(b.storage->data()),
                         b.columns,
                         b.column_stride,
                         b.term_stride,
                         b.tap_stride,
                         taps,
                         terms,
                         form.lanes,
                         form.tiles};
  if (Storage retained = derived(*b.storage, key, 0, form.bytes(), fill)) return retained;
  auto memory = make_ref<StorageImpl>(form.bytes(), Device{});
  fill(memory->data());
  return memory;
}

// The words of a row of the left operand: groups of kStepWords words.
struct PackedRow {
  uint32_t* first;
  int64_t step, group;  // from word to word, and from group to group
  uint32_t* at(int64_t word) const {
    return first + word / loop::kStepWords * group + word % loop::kStepWords * step;
  }
};
// The place of row `row` of a block. `form`: of the right operand, whose words match.
PackedRow packed_row(uint32_t* block, int64_t row, const ByteVariant& v, const PackedWeight& form) {
  block += row / v.rows * v.rows * form.words, row %= v.rows;
  if (!v.tiles) return {block + row, v.rows, v.rows * loop::kStepWords};
  const int64_t tile = row / loop::kTileRows;
  return {block + tile * loop::kTileWords + row % loop::kTileRows * loop::kStepWords, 1, loop::kPanelStep};
}

// Copies a group of words by vectors; the array in between tells the compiler that nothing overlaps.
inline void copy_group(const uint8_t* from, uint32_t flip, uint32_t* to) {
  uint32_t words[loop::kStepWords];
  std::memcpy(words, from, sizeof words);
  for (auto& x : words) x ^= flip;
  std::memcpy(to, words, sizeof words);
}
inline void copy_words(const uint8_t* from, int64_t count, uint32_t flip, int64_t step, uint32_t* to) {
  for (int64_t w = 0; w < count; ++w) {
    uint32_t x;
    std::memcpy(&x, from + w * kWord, sizeof x);
    to[w * step] = x ^ flip;
  }
}
// Copies `terms` bytes to the words from `word` on; the last one is filled up with anything.
void copy_bytes(const uint8_t* from, int64_t terms, uint32_t flip, const PackedRow& row, int64_t word) {
  const int64_t end = word + terms / kWord;
  while (word < end) {
    const int64_t count = std::min(end - word, loop::kStepWords - word % loop::kStepWords);
    if (row.step == 1 && count == loop::kStepWords) copy_group(from, flip, row.at(word));
    else copy_words(from, count, flip, row.step, row.at(word));
    word += count, from += count * kWord;
  }
  const int64_t rest = terms % kWord;
  if (rest == 0) return;
  uint32_t x = 0;
  std::memcpy(&x, from, size_t(rest));
  *row.at(word) = x ^ flip;
}

// Packs row `row` of the left operand.
using PackRow = std::function<void(int64_t row, const PackedRow& to)>;

void multiply(const ByteRows& left, int64_t m, int64_t taps, int64_t terms, const PackRow& pack_row,
              const ByteWeight& right, const ByteResult& out, ByteWay way) {
  const int64_t tap_words = ceil_div(terms, kWord);
  ByteVariant v = way == ByteWay::tiles ? byte_tile_variant(codegen::vector_lanes())
                                        : byte_variant(m, codegen::vector_lanes());
  v.result = out.dtype, v.bias = out.bias != nullptr, v.relu = out.relu;
  const int64_t lanes = v.tiles ? loop::kTileColumns : v.lanes, width = v.width();
  const int64_t words =
      v.tiles ? ceil_div(taps * tap_words, loop::kStepWords) * loop::kStepWords : taps * tap_words;
  const PackedWeight form{words, ceil_div(right.columns, width) * (width / lanes), lanes, v.tiles};
  const Storage packed = packed_weight(right, taps, terms, form);
  // Bytes with sign are read as ones without, 128 larger.
  const int32_t shift = left.zero_point + (left.has_sign ? 128 : 0);
  std::vector<int32_t> corrections(size_t(form.strips * lanes));
  for (size_t j = 0; j < corrections.size(); ++j)
    corrections[j] = int32_t(-uint32_t(shift) * uint32_t(form.sums(packed->data())[j]));

  // A block of the left operand stays in the second cache.
  int64_t rows = cache_sizes().second / 3 / (form.words * kWord);
  rows = std::clamp(ceil_div(rows, v.rows) * v.rows, int64_t(v.rows), ceil_div(m, v.rows) * v.rows);
  int64_t columns = ceil_div(right.columns, width) * width;
  // Tasks that share rows pack them each, which the unit waits for longer than vectors do.
  const int64_t wanted = (v.tiles ? 2 : 4) * num_threads(), least_rows = (v.tiles ? 2 : 4) * v.rows;
  auto tasks = [&] { return ceil_div(m, rows) * ceil_div(right.columns, columns); };
  while (num_threads() > 1 && tasks() < wanted) {
    if (rows > least_rows) rows = ceil_div(ceil_div(rows, 2), v.rows) * v.rows;
    else if (columns > 2 * width) columns = ceil_div(ceil_div(columns, 2), width) * width;
    else break;
  }
  auto& kernel = task_kernel_of(v, [](const ByteVariant& w) { return byte_nest(w); });
  const int64_t column_blocks = ceil_div(right.columns, columns);
  each_task(tasks(), double(rows) * double(columns) * double(form.words), [&](int64_t t) {
    const int64_t row = t / column_blocks * rows, column = t % column_blocks * columns;
    const int64_t count = std::min(rows, m - row);
    auto* block = static_cast<uint32_t*>(
        scratch(Scratch::source, size_t(ceil_div(count, v.rows) * v.rows * form.words * kWord)));
    for (int64_t r = 0; r < count; ++r) pack_row(row + r, packed_row(block, r, v, form));
    std::array<int64_t, P::count> params{};
    params[P::words] = form.words, params[P::rows] = count;
    params[P::columns] = std::min(columns, right.columns - column);
    params[P::out_stride] = right.columns, params[P::zero_point] = out.zero_point, params[P::tasks] = 1;
    std::array<void*, B::count> buffers{};
    buffers[B::left] = block;
    buffers[B::right] = static_cast<int32_t*>(packed->data()) + column * form.words;
    buffers[B::corrections] = corrections.data() + column;
    buffers[B::multiplier] = const_cast<float*>(out.multiplier ? out.multiplier + column : nullptr);
    buffers[B::bias] = const_cast<float*>(out.bias ? out.bias + column : nullptr);
    buffers[B::out] = at(out.data, row * right.columns + column, out.dtype);
    WorkMemory work(kernel, params.data());
    work.place(static_cast<char*>(scratch(Scratch::other, work.bytes())), buffers);
    codegen::Status status;
    kernel.kernel->fn(buffers.data(), params.data(), 0, 1, &status);
  });
}

// Multiplies tiles of drawn bytes by the unit and by the reference, and compares the sums.
bool is_as_described() {
  constexpr int64_t kSteps = 3, kSize = kSteps * loop::kPanelStep;
  std::vector<int32_t> left(kSize), right(kSize);
  uint32_t bits = 1;
  for (auto* panel : {&left, &right})
    for (auto& word : *panel) {
      bits = bits * 1664525 + 1013904223;  // Numerical Recipes' generator
      word = int32_t(bits ^ bits >> 15);
    }
  return is_reference_product({0, 1, 1, {{{0, 0}}}, loop::TileWords::bytes}, left, right, kSteps);
}

}  // namespace

void byte_product(const ByteMatrix& left, const ByteWeight& right, const ByteResult& out, ByteWay way) {
  const auto* data = static_cast<const uint8_t*>(left.rows.data);
  const uint32_t flip = left.rows.has_sign ? kSigns : 0;
  multiply(
      left.rows, left.m, 1, left.k,
      [&](int64_t row, const PackedRow& to) { copy_bytes(data + row * left.k, left.k, flip, to, 0); }, right,
      out, way);
}

void byte_product(const ByteImages& x, const ByteWeight& right, const ByteResult& out, ByteWay way) {
  const auto* data = static_cast<const uint8_t*>(x.rows.data);
  const uint32_t flip = x.rows.has_sign ? kSigns : 0;
  const int64_t tap_words = ceil_div(x.c, kWord);
  // Windows have the zero point beyond the image.
  const uint32_t outside = (uint32_t(uint8_t(x.rows.zero_point)) * 0x01010101u) ^ flip;
  auto pack_row = [&](int64_t row, const PackedRow& to) {
    int64_t word = 0;
    const int64_t image = row / (x.oh * x.ow), oy = row / x.ow % x.oh, ox = row % x.ow;
    for (int64_t ky = 0; ky < x.kh; ++ky)
      for (int64_t kx = 0; kx < x.kw; ++kx, word += tap_words) {
        const int64_t y = oy * x.stride[0] + ky * x.dilation[0] - x.padding[0];
        const int64_t z = ox * x.stride[1] + kx * x.dilation[1] - x.padding[1];
        if (y >= 0 && y < x.h && z >= 0 && z < x.w)
          copy_bytes(data + ((image * x.h + y) * x.w + z) * x.c, x.c, flip, to, word);
        else
          for (int64_t w = 0; w < tap_words; ++w) *to.at(word + w) = outside;
      }
  };
  multiply(x.rows, x.n * x.oh * x.ow, x.kh * x.kw, x.c, pack_row, right, out, way);
}

bool multiplies_byte_tiles() {
  static const bool right = has_byte_matrix_unit() && is_as_described();
  return right;
}

}  // namespace facula::device::cpu
