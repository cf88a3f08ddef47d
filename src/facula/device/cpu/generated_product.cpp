#include "facula/device/cpu/generated_product.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "facula/base/cache_sizes.h"
#include "facula/base/parallel.h"
#include "facula/codegen/kernel.h"
#include "facula/device/cpu/onednn.h"
#include "facula/schedule/flatten.h"
#include "facula/schedule/product_tiles.h"
#include "facula/tensor/tensor.h"

namespace facula::device::cpu {

namespace {

using schedule::ceil_div;
using P = ProductParam;
using B = ProductBuffer;

constexpr double kThreadWork = 65536;     // multiplications worth a thread
constexpr int64_t kMostPacked = 8 << 20;  // bytes of the right operand that are packed at once
constexpr size_t kMostBuffers = 24, kMostParams = 32;

// Calls f(task) for every task; threads take the next one as they become free.
template <class F>
void each_task(int64_t tasks, double work, F&& f) {
  int64_t grain = std::max<int64_t>(1, int64_t(kThreadWork / std::max(1.0, work)));
  int64_t threads = std::clamp<int64_t>(tasks / grain, 1, num_threads());
  std::atomic<int64_t> next{0};
  parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin)
      for (int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) f(t);
  });
}

// Columns [first, first + columns) of the right operand, packed.
struct PackedRight {
  Tensor memory;
  int64_t batch;  // elements from matrix to matrix
};

PackedRight pack(const GeneratedProduct& p, int64_t first, int64_t columns, int64_t strips) {
  using Q = PackParam;
  int64_t lanes = codegen::vector_lanes(), count = p.b.batch ? p.count : 1;
  PackedRight r;
  r.batch = p.b.batch ? strips * p.k * lanes : 0;
  const int64_t elements[] = {count * strips * p.k * lanes};
  r.memory = Tensor::empty(IntSpan(elements), DType::Float32);
  auto& kernel = kernel_of(PackVariant{p.b.adjacent}, [](const PackVariant& v) { return pack_nest(v); });
  std::array<int64_t, Q::count> params{};
  params[Q::n] = columns, params[Q::k] = p.k, params[Q::stride] = p.b.stride, params[Q::batch] = p.b.batch;
  params[Q::out_batch] = r.batch, params[Q::strips] = strips;
  params[Q::groups] = ceil_div(strips, kPackedStrips);
  params[Q::tasks] = params[Q::groups] * count;
  auto* from = p.b.data + first * (p.b.adjacent == Adjacent::row ? 1 : p.b.stride);
  void* buffers[] = {const_cast<float*>(from), r.memory.data_ptr()};
  each_task(params[Q::tasks], double(p.k) * double(kPackedStrips * lanes), [&](int64_t t) {
    codegen::Status status;
    kernel.fn(buffers, params.data(), t, t + 1, &status);
  });
  return r;
}

// Multiplies by packed columns from `first` on.
void multiply(const GeneratedProduct& p, const schedule::ProductTiles& tiles, const PackedRight& b,
              int64_t first, int64_t columns) {
  ProductVariant v{p.a.adjacent, tiles.rows, tiles.vectors, p.alpha != 1 || p.beta != 0, p.epilogue};
  auto& kernel = task_kernel_of(v, [](const ProductVariant& w) { return product_nest(w); });
  std::array<int64_t, kMostParams> params{};
  params[P::m] = p.m, params[P::n] = columns, params[P::k] = p.k;
  params[P::a_stride] = p.a.stride, params[P::a_batch] = p.a.batch, params[P::b_batch] = b.batch;
  params[P::out_stride] = p.out_stride, params[P::out_batch] = p.out_batch;
  params[P::rows] = tiles.block_rows, params[P::columns] = tiles.block_columns,
  params[P::terms] = tiles.terms;
  params[P::row_blocks] = ceil_div(p.m, tiles.block_rows);
  params[P::column_blocks] = ceil_div(columns, tiles.block_columns);
  params[P::adds] = p.beta != 0;
  params[P::tasks] = params[P::row_blocks] * params[P::column_blocks] * p.count;
  std::copy(p.params.begin(), p.params.end(), params.begin() + P::count);
  float numbers[] = {p.alpha, p.beta};
  std::array<void*, kMostBuffers> buffers{};
  buffers[B::a] = const_cast<float*>(p.a.data), buffers[B::b] = b.memory.data_ptr(),
  buffers[B::out] = p.out + first;
  buffers[B::numbers] = numbers;
  std::copy(p.operands.begin(), p.operands.end(), buffers.begin() + B::count);
  WorkMemory work(kernel, params.data());
  double each = double(tiles.block_rows) * double(tiles.block_columns) * double(p.k);
  each_task(params[P::tasks], each, [&](int64_t t) {
    auto own = buffers;
    work.place(static_cast<char*>(scratch(Scratch::other, work.bytes())), own);
    codegen::Status status;
    kernel.kernel->fn(own.data(), params.data(), t, t + 1, &status);
  });
}

}  // namespace

void run(const GeneratedProduct& p) {
  if (p.m == 0 || p.n == 0 || p.count == 0) return;
  run(p, schedule::product_tiles({p.m, p.n, p.k, p.count}, codegen::vector_lanes(), num_threads(),
                                 cache_sizes()));
}

void run(const GeneratedProduct& p, const schedule::ProductTiles& tiles) {
  internal_check(p.m > 0 && p.n > 0 && p.k > 0) << "a product of " << p.m << "x" << p.k << "x" << p.n;
  int64_t lanes = codegen::vector_lanes();
  int64_t width = tiles.vectors * lanes;
  int64_t row_bytes = p.k * int64_t(sizeof(float)) * (p.b.batch ? p.count : 1);
  int64_t most = std::max(kMostPacked / row_bytes / tiles.block_columns, int64_t(1)) * tiles.block_columns;
  for (int64_t first = 0; first < p.n; first += most) {
    int64_t columns = std::min(most, p.n - first);
    auto packed = pack(p, first, columns, ceil_div(columns, width) * tiles.vectors);
    multiply(p, tiles, packed, first, columns);
  }
}

}  // namespace facula::device::cpu
