#include "facula/device/cpu/generated_product.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "facula/base/cache_sizes.h"
#include "facula/base/parallel.h"
#include "facula/codegen/kernel.h"
#include "facula/device/cpu/onednn.h"
#include "facula/device/cpu/product_run.h"
#include "facula/device/cpu/skinny_nest.h"
#include "facula/profile/profile.h"
#include "facula/schedule/flatten.h"
#include "facula/schedule/product_tiles.h"
#include "facula/tensor/derived.h"

namespace facula::device::cpu {

namespace {

using schedule::ceil_div;
using P = ProductParam;
using B = ProductBuffer;

constexpr int64_t kSkinny = 16;
constexpr int64_t kSkinnyColumns = 96;  // of a task, at most

// The packed right operand; its strips follow each other.
struct PackedRight {
  Storage memory;
  int64_t batch;  // elements from matrix to matrix
};

int64_t strips_of(int64_t columns, const schedule::ProductTiles& tiles) {
  return ceil_div(columns, tiles.vectors * codegen::vector_lanes()) * tiles.vectors;
}
size_t packed_bytes(const GeneratedProduct& p, int64_t strips) {
  return size_t((p.b.batch ? p.count : 1) * strips * p.k * codegen::vector_lanes()) * sizeof(float);
}

// Packs columns [first, first + columns) of the right operand.
void pack(const GeneratedProduct& p, int64_t first, int64_t columns, int64_t strips, void* to) {
  using Q = PackParam;
  auto& kernel = kernel_of(PackVariant{p.b.adjacent, p.operand_dtype},
                           [](const PackVariant& v) { return pack_nest(v); });
  std::array<int64_t, Q::count> params{};
  params[Q::n] = columns, params[Q::k] = p.k, params[Q::stride] = p.b.stride, params[Q::batch] = p.b.batch;
  params[Q::out_batch] = strips * p.k * codegen::vector_lanes(), params[Q::strips] = strips;
  params[Q::groups] = ceil_div(strips, kPackedStrips);
  params[Q::tasks] = params[Q::groups] * (p.b.batch ? p.count : 1);
  int64_t from = first * (p.b.adjacent == Adjacent::row ? 1 : p.b.stride);
  void* buffers[] = {at(p.b.data, from, p.operand_dtype), to};
  each_task(params[Q::tasks], double(p.k) * double(kPackedStrips * codegen::vector_lanes()), [&](int64_t t) {
    codegen::Status status;
    kernel.fn(buffers, params.data(), t, t + 1, &status);
  });
}

// Multiplies by packed columns from `first` on.
void multiply(const GeneratedProduct& p, const schedule::ProductTiles& tiles, const PackedRight& b,
              int64_t first, int64_t columns) {
  ProductVariant v{p.a.adjacent, tiles.rows, tiles.vectors, p.alpha != 1 || p.beta != 0, form_of(p)};
  auto& kernel = task_kernel_of(v, [](const ProductVariant& w) { return product_nest(w); });
  Buffers buffers{};
  Params params{};
  float numbers[2];
  set_product(p, {tiles.block_rows, tiles.block_columns, tiles.terms}, first, columns, numbers, B::count,
              P::count, buffers, params);
  params[P::b_batch] = b.batch, buffers[B::b] = b.memory->data();
  double each = double(tiles.block_rows) * double(tiles.block_columns) * double(p.k);
  run_tasks(kernel, buffers, params, each, params[P::tasks]);
}

// Reads the right operand once, without packing it.
void multiply_skinny(const GeneratedProduct& p) {
  using F = SkinnyParam;
  using G = SkinnyBuffer;
  SkinnyVariant v = skinny_variant(p.m, codegen::vector_lanes());
  v.form = form_of(p);
  auto& kernel = task_kernel_of(v, [](const SkinnyVariant& w) { return skinny_nest(w); });
  Params params{};
  params[F::m] = p.m, params[F::n] = p.n, params[F::k] = p.k;
  params[F::a_stride] = p.a.stride, params[F::b_stride] = p.b.stride, params[F::out_stride] = p.out_stride;
  // Several tasks for each thread, of whole groups of columns.
  int64_t columns = std::clamp(p.n / (8 * num_threads()), int64_t(v.columns), kSkinnyColumns);
  params[F::columns] = ceil_div(columns, v.columns) * v.columns;
  params[F::tasks] = ceil_div(p.n, params[F::columns]);
  std::copy(p.params.begin(), p.params.end(), params.begin() + F::count);
  Buffers buffers{};
  buffers[G::a] = at(p.a.data, 0, p.operand_dtype), buffers[G::b] = at(p.b.data, 0, p.operand_dtype);
  buffers[G::out] = p.out, buffers[G::result] = p.result;
  std::copy(p.operands.begin(), p.operands.end(), buffers.begin() + G::count);
  run_tasks(kernel, buffers, params, double(p.m) * double(params[F::columns]) * double(p.k),
            params[F::tasks]);
}

}  // namespace

void run_tasks(const TaskKernel& kernel, const Buffers& buffers, const Params& params, double work,
               int64_t tasks) {
  std::optional<profile::Scope> scope;
  if (profile::on()) [[unlikely]]
    scope.emplace(profile::Category::kernel, kernel.kernel->name);
  WorkMemory memory(kernel, params.data());
  each_task(tasks, work, [&](int64_t t) {
    auto own = buffers;
    memory.place(static_cast<char*>(scratch(Scratch::other, memory.bytes())), own);
    codegen::Status status;
    kernel.kernel->fn(own.data(), params.data(), t, t + 1, &status);
  });
}

void set_product(const GeneratedProduct& p, const ProductBlocks& blocks, int64_t first, int64_t columns,
                 float* numbers, int operands, int epilogue_params, Buffers& buffers, Params& params) {
  params[P::m] = p.m, params[P::n] = columns, params[P::k] = p.k;
  params[P::a_stride] = p.a.stride, params[P::a_batch] = p.a.batch;
  params[P::out_stride] = p.out_stride, params[P::out_batch] = p.out_batch;
  params[P::rows] = blocks.rows, params[P::columns] = blocks.columns, params[P::terms] = blocks.terms;
  params[P::row_blocks] = ceil_div(p.m, blocks.rows);
  params[P::column_blocks] = ceil_div(columns, blocks.columns);
  params[P::adds] = p.beta != 0;
  params[P::batch_rows] = p.m, params[P::first_column] = first;
  params[P::tasks] = params[P::row_blocks] * params[P::column_blocks] * p.count;
  std::copy(p.params.begin(), p.params.end(), params.begin() + epilogue_params);
  numbers[product_alpha] = p.alpha, numbers[product_beta] = p.beta;
  buffers[B::a] = at(p.a.data, 0, p.operand_dtype);
  buffers[B::out] = p.out + first;
  buffers[B::numbers] = numbers;
  if (p.result) buffers[B::result] = at(p.result, first, p.result_dtype);
  std::copy(p.operands.begin(), p.operands.end(), buffers.begin() + operands);
}

Storage retained_pack(const GeneratedProduct& p, Packing packing, int64_t form, size_t bytes,
                      const std::function<void(void*)>& pack) {
  constexpr int64_t kMostRows = 2048;  // packing takes less than a hundredth of a product of more rows
  if (!p.b.storage || p.count != 1 || p.m > kMostRows) return {};
  const auto* begin = static_cast<const char*>(p.b.storage->data());
  const int64_t key[] = {int64_t(packing),
                         form,
                         codegen::vector_lanes(),
                         int64_t(p.operand_dtype),
                         static_cast<const char*>(p.b.data) - begin,
                         int64_t(p.b.adjacent),
                         p.b.stride,
                         p.n,
                         p.k};
  return derived(*p.b.storage, key, int(p.b.adjacent), bytes, pack);
}

bool is_skinny(int64_t m, int64_t count, const MatrixOperand& a, const MatrixOperand& b) {
  return m <= kSkinny && count == 1 && a.adjacent == Adjacent::row && b.adjacent == Adjacent::column;
}

void run(const GeneratedProduct& p) {
  if (p.m == 0 || p.n == 0 || p.count == 0) return;
  if (p.alpha == 1 && p.beta == 0 && is_skinny(p.m, p.count, p.a, p.b)) return multiply_skinny(p);
  run(p, schedule::product_tiles({p.m, p.n, p.k, p.count}, codegen::vector_lanes(), num_threads(),
                                 cache_sizes()));
}

void run(const GeneratedProduct& p, const schedule::ProductTiles& tiles) {
  internal_check(p.m > 0 && p.n > 0 && p.k > 0) << "a product of " << p.m << "x" << p.k << "x" << p.n;
  internal_check(tiles.terms <= schedule::kMostTerms) << "K blocks of " << tiles.terms;
  auto pack_all = [&](void* to) { pack(p, 0, p.n, strips_of(p.n, tiles), to); };
  if (auto retained =
          retained_pack(p, Packing::strips, tiles.vectors, packed_bytes(p, strips_of(p.n, tiles)), pack_all))
    return multiply(p, tiles, {retained, 0}, 0, p.n);
  int64_t row_bytes = p.k * int64_t(sizeof(float)) * (p.b.batch ? p.count : 1);
  int64_t most = std::max(kMostPacked / row_bytes / tiles.block_columns, int64_t(1)) * tiles.block_columns;
  for (int64_t first = 0; first < p.n; first += most) {
    int64_t columns = std::min(most, p.n - first);
    int64_t strips = strips_of(columns, tiles);
    auto memory = make_ref<StorageImpl>(packed_bytes(p, strips), Device{});
    pack(p, first, columns, strips, memory->data());
    multiply(p, tiles, {memory, p.b.batch ? strips * p.k * codegen::vector_lanes() : 0}, first, columns);
  }
}

}  // namespace facula::device::cpu
