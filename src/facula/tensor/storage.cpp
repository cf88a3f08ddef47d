#include "facula/tensor/storage.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <vector>

#include "facula/base/error.h"
#include "facula/tensor/block.h"

namespace facula {

namespace {

std::atomic<int64_t> current_bytes{0}, peak_bytes{0}, allocation_count{0};

void count(int64_t bytes) {
  int64_t now = current_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes < 0) return;
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {}
}

constexpr size_t kAlign = 64;
// Small blocks: powers of two from 64 bytes to 16 KiB, each with its own list in every thread.
template <size_t Bytes> using Small = detail::FreeList<Bytes, kAlign, (size_t(1) << 20) / Bytes>;
template <class F> auto with_class(size_t bytes, F&& f) {
  switch (std::bit_width((bytes - 1) | 63)) {
    case 6: return f(Small<64>());
    case 7: return f(Small<128>());
    case 8: return f(Small<256>());
    case 9: return f(Small<512>());
    case 10: return f(Small<1024>());
    case 11: return f(Small<2048>());
    case 12: return f(Small<4096>());
    case 13: return f(Small<8192>());
    default: return f(Small<16384>());
  }
}
constexpr size_t kSmall = 16384;

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
    void* p = ::operator new(got, std::align_val_t(kAlign), std::nothrow);
    if (!p) {
      release_all();
      p = ::operator new(got, std::align_val_t(kAlign), std::nothrow);
    }
    runtime_check(p, "allocate") << "not enough memory: tried to allocate " << bytes << " bytes";
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
  if (!bytes) return;
  if (bytes <= kSmall) data_ = with_class(bytes, [](auto list) { return list.take(); });
  else data_ = pool().take(bytes, capacity_);
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
  if (bytes_ <= kSmall) with_class(bytes_, [&](auto list) { list.give(data_); });
  else pool().give(data_, capacity_);
}

void* StorageImpl::operator new(size_t) { return detail::FreeList<sizeof(StorageImpl), alignof(std::max_align_t), 1024>::take(); }
void StorageImpl::operator delete(void* p) { detail::FreeList<sizeof(StorageImpl), alignof(std::max_align_t), 1024>::give(p); }

void StorageImpl::restore_plain(int itemsize) {
  if (order_.is_plain()) return;
  // Element (i0, i1, ...) lies at its row-major position in the permuted sizes; move it to the plain one.
  int rank = order_.rank;
  int64_t stride[8], next = 1;
  for (int k = rank - 1; k >= 0; --k) {
    stride[order_.order[k]] = next;
    next *= order_.sizes[order_.order[k]];
  }
  std::vector<std::byte> plain(size_t(next) * size_t(itemsize));
  int64_t at[8] = {};
  for (int64_t n = 0; n < next; ++n) {
    int64_t from = 0;
    for (int k = 0; k < rank; ++k) from += at[k] * stride[k];
    std::memcpy(plain.data() + n * itemsize, static_cast<std::byte*>(data_) + from * itemsize, size_t(itemsize));
    for (int k = rank - 1; k >= 0 && ++at[k] == order_.sizes[k]; --k) at[k] = 0;
  }
  std::memcpy(data_, plain.data(), plain.size());
  order_ = {};
}

MemoryStats memory_stats() { return {current_bytes, peak_bytes, allocation_count}; }
void reset_peak_memory() { peak_bytes = current_bytes.load(); }

}  // namespace facula
