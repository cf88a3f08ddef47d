// Runs the tasks of the nests of products; private to generated_product.cpp and tile_product.cpp.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "facula/base/parallel.h"
#include "facula/device/cpu/generated_product.h"
#include "facula/device/cpu/nest_builder.h"

namespace facula::device::cpu {

constexpr int64_t kMostPacked = 8 << 20;  // bytes of the right operand that are packed at once
constexpr double kThreadWork = 65536;     // multiplications worth a thread
constexpr size_t kMostBuffers = 32, kMostParams = 48;

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

// The address of an element, as nests take it.
inline void* at(const void* data, int64_t element, DType d) {
  return const_cast<char*>(static_cast<const char*>(data)) + element * itemsize(d);
}

inline ProductForm form_of(const GeneratedProduct& p) {
  return {p.epilogue, p.result != nullptr, p.saved, p.operand_dtype, p.result_dtype};
}

// The right operand packed in one of these ways.
enum class Packing : int64_t { strips, tiles };
// The packed right operand that its storage retains, or that `pack` writes and it retains from now on (tensor/derived.h); null if it
// is packed for this call. `form`: what its layout depends on besides shape, strides and dtype.
Storage retained_pack(const GeneratedProduct& p, Packing packing, int64_t form, size_t bytes,
                      const std::function<void(void*)>& pack);

using Buffers = std::array<void*, kMostBuffers>;
using Params = std::array<int64_t, kMostParams>;
// Runs the tasks of a kernel with `work` multiplications each.
void run_tasks(const TaskKernel& kernel, const Buffers& buffers, const Params& params, double work,
               int64_t tasks);

// Sets what ProductParam and ProductBuffer have in common for all nests: shapes, strides, blocks, the result, and from `operands` and
// `params` on those of the epilogue. `numbers` gets alpha and beta, and lives as long as the buffers are used.
struct ProductBlocks {
  int64_t rows, columns, terms;
};
void set_product(const GeneratedProduct& p, const ProductBlocks& blocks, int64_t first, int64_t columns,
                 float* numbers, int operands, int epilogue_params, Buffers& buffers, Params& params);

}  // namespace facula::device::cpu
