#include "facula/tensor/storage.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <vector>

#include "facula/base/error.h"
#include "facula/base/parallel.h"
#include "facula/tensor/block.h"

namespace facula {

namespace {

std::atomic<int64_t> current_bytes{0}, peak_bytes{0}, allocation_count{0};

constexpr size_t kAlign = 64;
// Small blocks: powers of two from 64 bytes to 64 KiB, each with its own list in every thread.
constexpr int kClasses = 11;
constexpr size_t kSmall = size_t(64) << (kClasses - 1);
constexpr int class_of(size_t bytes) { return std::bit_width((bytes - 1) | 63) - 6; }
constexpr size_t class_bytes(int k) { return size_t(64) << k; }
constexpr uint32_t class_limit(int k) { return uint32_t((size_t(1) << 20) >> (k + 6)); }

// What a thread keeps: its small blocks, and the counts that it has not passed on.
struct Local {
  detail::BlockList blocks[kClasses];
  int64_t bytes, highest, allocations;  // changes since the last flush
  bool armed;
};
constinit FACULA_FAST_THREAD_LOCAL Local local{};

void flush_counts() {
  int64_t before = current_bytes.fetch_add(local.bytes, std::memory_order_relaxed), top = before + local.highest;
  allocation_count.fetch_add(local.allocations, std::memory_order_relaxed);
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (top > peak && !peak_bytes.compare_exchange_weak(peak, top, std::memory_order_relaxed)) {}
  local.bytes = local.highest = local.allocations = 0;
}

struct Closer {
  ~Closer() {
    flush_counts();
    for (auto& list : local.blocks) list.close(kAlign);
  }
};
void arm() {
  if (local.armed) return;
  static thread_local Closer closer;
  local.armed = (void(&closer), true);
}

constexpr int64_t kCounted = 65536;
void count(int64_t bytes) {
  local.bytes += bytes;
  if (bytes > 0) {
    ++local.allocations;
    local.highest = std::max(local.highest, local.bytes);
  }
  if (local.bytes > kCounted || local.bytes < -kCounted) [[unlikely]] flush_counts();
}

void* system_block(size_t bytes) { return ::operator new(bytes, std::align_val_t(kAlign), std::nothrow); }
[[noreturn]] void out_of_memory(size_t bytes) {
  runtime_check(false, "allocate") << "not enough memory: tried to allocate " << bytes << " bytes";
  __builtin_unreachable();
}

// Large blocks wait here for a request of about their size, so that a training loop does not return its pages to the
// system and fault them in again in every step.
class Pool {
 public:
  void* take(size_t bytes, size_t& got) {
    got = (bytes + 4095) / 4096 * 4096;
    {
      std::lock_guard lock(mutex_);
      size_t best = free_.size();
      for (size_t k = free_.size(); k-- > 0;)
        if (free_[k].bytes >= got && free_[k].bytes <= got + got / 4 && (best == free_.size() || free_[k].bytes < free_[best].bytes)) best = k;
      if (best < free_.size()) {
        auto b = free_[best];
        free_.erase(free_.begin() + long(best));
        held_ -= b.bytes;
        got = b.bytes;
        return b.data;
      }
    }
    void* p = system_block(got);
    if (!p) {
      release_all();
      p = system_block(got);
    }
    if (!p) out_of_memory(bytes);
    return p;
  }
  void give(void* p, size_t bytes) {
    std::lock_guard lock(mutex_);
    free_.push_back({p, bytes});
    held_ += bytes;
    while (held_ > kHeld || free_.size() > 256) {
      held_ -= free_.front().bytes;
      ::operator delete(free_.front().data, std::align_val_t(kAlign));
      free_.erase(free_.begin());
    }
  }

 private:
  static constexpr size_t kHeld = size_t(1) << 30;
  struct Block { void* data; size_t bytes; };
  void release_all() {
    std::lock_guard lock(mutex_);
    for (auto& b : free_) ::operator delete(b.data, std::align_val_t(kAlign));
    free_.clear();
    held_ = 0;
  }
  std::mutex mutex_;
  std::vector<Block> free_;
  size_t held_ = 0;
};
Pool& pool() {
  static Pool* p = new Pool;
  return *p;
}

}  // namespace

StorageImpl::StorageImpl(size_t bytes, Device device) : bytes_(bytes), device_(device) {
  if (!bytes || device.type == DeviceType::meta) return;
  supported_check(device.type == DeviceType::cpu, "allocate") << "memory of device '" << to_string(device) << "' is not available in this build";
  if (bytes <= kSmall) {
    int k = class_of(bytes);
    data_ = local.blocks[k].pop();
    if (!data_) {
      arm();
      data_ = system_block(class_bytes(k));
      if (!data_) out_of_memory(bytes);
    }
  } else {
    data_ = pool().take(bytes, capacity_);
  }
  count(int64_t(bytes));
}

StorageImpl::StorageImpl(void* data, size_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), device_(device), foreign_(std::make_unique<std::function<void()>>(std::move(release))) {}

StorageImpl::~StorageImpl() {
  if (foreign_) {
    if (*foreign_) (*foreign_)();
    return;
  }
  if (!data_) return;
  count(-int64_t(bytes_));
  if (bytes_ > kSmall) {
    pool().give(data_, capacity_);
    return;
  }
  if (!local.armed) [[unlikely]] arm();
  int k = class_of(bytes_);
  if (!local.blocks[k].push(data_, class_limit(k))) ::operator delete(data_, std::align_val_t(kAlign));
}

using Recycled = detail::FreeList<sizeof(StorageImpl), alignof(std::max_align_t), 1024>;
void* StorageImpl::operator new(size_t) { return Recycled::take(); }
void StorageImpl::operator delete(void* p) { Recycled::give(p); }

void StorageImpl::set_order(const PhysicalOrder& o) { order_ = o.is_plain() ? nullptr : std::make_unique<PhysicalOrder>(o); }

namespace {

// Copies rows of n elements, `stride` elements apart, one after the other.
template <class T> void gather_row(std::byte* to, const std::byte* from, int64_t n, int64_t stride) {
  for (int64_t k = 0; k < n; ++k) std::memcpy(to + k * int64_t(sizeof(T)), from + k * stride * int64_t(sizeof(T)), sizeof(T));
}
using GatherRow = void (*)(std::byte*, const std::byte*, int64_t, int64_t);
GatherRow gather_row_of(int itemsize) {
  switch (itemsize) {
    case 1: return gather_row<uint8_t>;
    case 2: return gather_row<uint16_t>;
    case 4: return gather_row<uint32_t>;
    case 8: return gather_row<uint64_t>;
    default: internal_check(itemsize == 16) << "itemsize " << itemsize; return gather_row<std::array<uint64_t, 2>>;
  }
}

}  // namespace

void StorageImpl::restore_plain(int itemsize) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (is_plain()) return;
  // Element (i0, i1, ...) lies at its row-major position in the permuted sizes; move it to the plain one.
  const PhysicalOrder& o = *order_;
  int rank = o.rank, last = rank - 1;
  int64_t stride[8], numel = 1;
  for (int k = last; k >= 0; --k) {
    stride[o.order[k]] = numel;
    numel *= o.sizes[o.order[k]];
  }
  if (numel) {
    std::vector<std::byte> plain(size_t(numel) * size_t(itemsize));
    auto gather = gather_row_of(itemsize);
    auto* base = static_cast<std::byte*>(data_);
    int64_t row = o.sizes[last], rows = numel / row;
    parallel_for(rows, std::max<int64_t>(1, 65536 / row), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        int64_t from = 0;
        for (int64_t k = last - 1, rest = n; k >= 0; --k) {
          from += rest % o.sizes[k] * stride[k];
          rest /= o.sizes[k];
        }
        gather(plain.data() + n * row * itemsize, base + from * itemsize, row, stride[last]);
      }
    });
    std::memcpy(data_, plain.data(), plain.size());
  }
  order_ = nullptr;
}

MemoryStats memory_stats() {
  flush_counts();
  return {current_bytes, peak_bytes, allocation_count};
}
void reset_peak_memory() {
  flush_counts();
  peak_bytes = current_bytes.load();
}

}  // namespace facula
