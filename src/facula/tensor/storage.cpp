#include "facula/tensor/storage.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "facula/base/caches.h"
#include "facula/base/error.h"
#include "facula/base/fork.h"
#include "facula/base/interrupt.h"
#include "facula/base/log.h"
#include "facula/base/parallel.h"
#include "facula/profile/profile.h"
#include "facula/tensor/block.h"
#include "facula/tensor/caching_allocator.h"
#include "facula/tensor/memory.h"
#include "facula/tensor/retained_block.h"

namespace facula {

namespace {

std::atomic<int64_t> current_bytes{0}, peak_bytes{0}, allocation_count{0}, total_bytes{0};
std::atomic<int64_t> reserved_bytes{0}, reserved_peak{0}, reserved_total{0}, retries{0}, failures{0};

void raise_to(std::atomic<int64_t>& peak, int64_t top) {
  int64_t recorded = peak.load(std::memory_order_relaxed);
  while (top > recorded && !peak.compare_exchange_weak(recorded, top, std::memory_order_relaxed)) {}
}

constexpr size_t kAlign = 64;
// Small blocks: powers of two from 64 bytes to 64 KiB, each with a list per thread.
constexpr int kClasses = 11;
constexpr size_t kSmall = size_t(64) << (kClasses - 1);
constexpr int class_of(size_t bytes) { return std::bit_width((bytes - 1) | 63) - 6; }
constexpr size_t class_bytes(int k) { return size_t(64) << k; }
constexpr uint32_t class_limit(int k) { return uint32_t((size_t(1) << 20) >> (k + 6)); }

// The state of a thread: its small blocks, and counts that it has not passed on.
struct Local {
  detail::BlockList blocks[kClasses];
  int64_t bytes, highest, allocations, total;  // changes since the last flush
  CachingAllocator* allocator;                 // of the innermost scope, or null
  bool armed;
};
constinit FACULA_FAST_THREAD_LOCAL Local local{};

void flush_counts() {
  int64_t before = current_bytes.fetch_add(local.bytes, std::memory_order_relaxed),
          top = before + local.highest;
  allocation_count.fetch_add(local.allocations, std::memory_order_relaxed);
  total_bytes.fetch_add(local.total, std::memory_order_relaxed);
  raise_to(peak_bytes, top);
  local.bytes = local.highest = local.allocations = local.total = 0;
}

std::atomic<int> threads_with_storages{0};

struct Closer {
  ~Closer() {
    threads_with_storages.fetch_sub(1);
    flush_counts();
    for (int k = 0; k < kClasses; ++k) {
      reserved_bytes.fetch_sub(int64_t(local.blocks[k].count * class_bytes(k)), std::memory_order_relaxed);
      local.blocks[k].close(kAlign);
    }
  }
};
void arm() {
  if (local.armed) return;
  static thread_local Closer closer;
  local.armed = (void(&closer), true);
  threads_with_storages.fetch_add(1);
}

constexpr int64_t kCounted = 65536;
bool is_much() { return local.bytes > kCounted || local.bytes < -kCounted; }
[[gnu::noinline, gnu::cold]] void pass_on(int64_t bytes) {
  if (is_much()) flush_counts();
  if (profile::on()) profile::count_bytes(bytes);
}
void count(int64_t bytes, bool again = false) {
  local.bytes += bytes;
  if (bytes > 0) {
    local.allocations += !again;
    local.total += bytes;
    local.highest = std::max(local.highest, local.bytes);
  }
  if (is_much() || profile::on()) [[unlikely]]
    pass_on(bytes);
}

[[noreturn]] void out_of_memory(size_t bytes) {
  failures.fetch_add(1, std::memory_order_relaxed);
  size_t held = size_t(current_bytes.load(std::memory_order_relaxed));
  auto text = "not enough memory: tried to allocate " + std::to_string(bytes) + " bytes";
  bool matters = held / 8 >= bytes / 64;
  runtime_check(matters, "allocate") << text;
  runtime_check(false, "allocate") << text << hint("tensors hold ", held, " bytes now");
  __builtin_unreachable();
}
// Asks for pages of 2 MiB where a block covers them: the first writes to a block then fault 512 times less often.
void use_large_pages(void* block, size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr size_t kPage = size_t(2) << 20;
  if (bytes < 2 * kPage) return;
  auto begin = (reinterpret_cast<uintptr_t>(block) + kPage - 1) / kPage * kPage,
       end = (reinterpret_cast<uintptr_t>(block) + bytes) / kPage * kPage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}
// `wanted`: the size before rounding up.
void* system_block(size_t bytes, size_t wanted) {
  auto make = [&] { return ::operator new(bytes, std::align_val_t(kAlign), std::nothrow); };
  void* p = make();
  if (!p) [[unlikely]] {
    retries.fetch_add(1, std::memory_order_relaxed);
    empty_cache();
    p = make();
    if (!p) out_of_memory(wanted);
  }
  use_large_pages(p, bytes);
  reserved_total.fetch_add(int64_t(bytes), std::memory_order_relaxed);
  raise_to(reserved_peak,
           reserved_bytes.fetch_add(int64_t(bytes), std::memory_order_relaxed) + int64_t(bytes));
  return p;
}
void give_to_system(void* p, size_t bytes) {
  ::operator delete(p, std::align_val_t(kAlign));
  reserved_bytes.fetch_sub(int64_t(bytes), std::memory_order_relaxed);
}

// Large blocks wait here for requests of about their size, so that a training loop does not return its pages to the
// system and fault them in again in every step. Sizes are rounded up by at most an eighth, so that slightly different
// requests share blocks; untouched pages cost nothing.
size_t rounded(size_t bytes) {
  size_t step = std::clamp(std::bit_floor(bytes) / 8, size_t(4) << 10, size_t(8) << 20);
  return (bytes + step - 1) / step * step;
}
class Pool {
 public:
  Pool() { free_.reserve(kMost + 1); }  // blocks are returned where nothing may throw
  void* take(size_t bytes, size_t& got) {
    got = rounded(bytes);
    {
      std::lock_guard lock(mutex_);
      size_t best = free_.size();
      for (size_t k = free_.size(); k-- > 0;)
        if (free_[k].bytes >= got && free_[k].bytes <= got + got / 4 &&
            (best == free_.size() || free_[k].bytes < free_[best].bytes))
          best = k;
      if (best < free_.size()) {
        auto b = free_[best];
        free_.erase(free_.begin() + long(best));
        held_ -= b.bytes;
        got = b.bytes;
        return b.data;
      }
    }
    return system_block(got, bytes);
  }
  void give(void* p, size_t bytes) {
    std::lock_guard lock(mutex_);
    free_.push_back({p, bytes});
    held_ += bytes;
    while (held_ > kHeld || free_.size() > kMost) {
      held_ -= free_.front().bytes;
      give_to_system(free_.front().data, free_.front().bytes);
      free_.erase(free_.begin());
    }
  }

  void release_all() {
    std::lock_guard lock(mutex_);
    for (auto& b : free_) give_to_system(b.data, b.bytes);
    free_.clear();
    held_ = 0;
  }
  std::pair<int64_t, int64_t> waiting() {
    std::lock_guard lock(mutex_);
    return {int64_t(held_), int64_t(free_.size())};
  }

 private:
  static constexpr size_t kHeld = size_t(1) << 30, kMost = 256;
  struct Block {
    void* data;
    size_t bytes;
  };
  TableMutex mutex_;
  std::vector<Block> free_;
  size_t held_ = 0;
};
Pool& pool() {
  static Pool* p = new Pool;
  return *p;
}

// `capacity`: the size of the block if it is larger than the blocks of its class.
[[gnu::always_inline]] inline void* take_block(size_t bytes, size_t& capacity) {
  if (local.allocator) [[unlikely]]
    return detail::take_from_allocator(*local.allocator, bytes, capacity);
  if (bytes > kSmall) {
    arm();
    return pool().take(bytes, capacity);
  }
  int k = class_of(bytes);
  if (void* p = local.blocks[k].pop()) return p;
  arm();
  return system_block(class_bytes(k), bytes);
}
[[gnu::always_inline]] inline void give_block(void* data, size_t bytes, size_t capacity) {
  if (detail::blocks_have_owners() && detail::give_to_owner(data)) [[unlikely]]
    return;
  if (bytes > kSmall) return pool().give(data, capacity);
  if (!local.armed) [[unlikely]]
    arm();
  int k = class_of(bytes);
  if (!local.blocks[k].push(data, class_limit(k))) give_to_system(data, class_bytes(k));
}
void give_back(void* data, size_t bytes, size_t capacity) {
  count(-int64_t(bytes));
  give_block(data, bytes, capacity);
}

// Memory whose elements were moved to another order while other threads run: one of them may have looked up its
// address just before and may still be reading. It is retained for longer than any kernel runs.
class Retired {
 public:
  void keep(void* data, size_t bytes, size_t capacity) {
    std::lock_guard lock(mutex_);
    blocks_.push_back({data, bytes, capacity, Clock::now() + std::chrono::seconds(2)});
    any_ = true;
  }
  void release() {
    if (!any_.load(std::memory_order_relaxed)) [[likely]]
      return;
    std::lock_guard lock(mutex_);
    auto now = Clock::now();
    size_t over = 0;
    for (; over < blocks_.size() && blocks_[over].until < now; ++over)
      give_back(blocks_[over].data, blocks_[over].bytes, blocks_[over].capacity);
    blocks_.erase(blocks_.begin(), blocks_.begin() + long(over));
    any_ = !blocks_.empty();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Block {
    void* data;
    size_t bytes, capacity;
    Clock::time_point until;
  };
  TableMutex mutex_;
  std::vector<Block> blocks_;
  std::atomic<bool> any_{false};
};
Retired& retired() {
  static auto* r = new Retired;
  return *r;
}

[[gnu::cold]] void log_order(const char* what, const PhysicalOrder& o) {
  std::string sizes, order;
  for (int k = 0; k < o.rank; ++k) {
    sizes += (k ? ", " : "") + std::to_string(o.sizes[k]);
    order += (k ? ", " : "") + std::to_string(o.order[k]);
  }
  log_line(Log::layouts, "[" + sizes + "] of " + std::to_string(o.itemsize) + " bytes each " + what +
                             ": dimensions from outside are [" + order + "]");
}

}  // namespace

namespace detail {

size_t capacity_for(size_t bytes) { return bytes > kSmall ? rounded(bytes) : class_bytes(class_of(bytes)); }
void* block_from_system(size_t bytes, size_t& capacity) {
  capacity = capacity_for(bytes);
  return system_block(capacity, bytes);
}
void block_to_system(void* block, size_t capacity) { give_to_system(block, capacity); }
CachingAllocator* exchange_caching_allocator(CachingAllocator* allocator) {
  return std::exchange(local.allocator, allocator);
}

}  // namespace detail

void* take_temporary(size_t bytes, size_t& capacity) {
  void* block = take_block(bytes, capacity);
  count(int64_t(bytes));
  return block;
}
void give_temporary(void* block, size_t bytes, size_t capacity) { give_back(block, bytes, capacity); }

namespace {
std::array<std::atomic<const DeviceMemory*>, kDeviceTypes> memories{};
}
void register_memory(DeviceType type, const DeviceMemory* memory) { memories.at(size_t(type)) = memory; }
const DeviceMemory* memory_of(DeviceType type) { return memories.at(size_t(type)); }

StorageImpl::StorageImpl(size_t bytes, Device device) : bytes_(bytes), device_(device) { allocate(); }

void StorageImpl::allocate_elsewhere() {
  note_device(device_);
  if (device_.type == DeviceType::meta) return;
  auto* memory = memory_of(device_.type);
  supported_check(memory, "allocate")
      << "memory of device '" << to_string(device_) << "' is not available in this build";
  if (bytes_) device_data_ = memory->allocate(bytes_, device_.index);
}

void StorageImpl::allocate() {
  if (device_.type != DeviceType::cpu) [[unlikely]]
    return allocate_elsewhere();
  if (!bytes_) return;
  data_ = take_block(bytes_, capacity_);
  count(int64_t(bytes_));
}

StorageImpl::StorageImpl(void* data, size_t bytes, Device device, std::function<void()> release)
    : data_(data),
      bytes_(bytes),
      device_(device),
      foreign_(std::make_unique<std::function<void()>>(std::move(release))) {}

StorageImpl::StorageImpl(Ref<StorageImpl> memory, const PhysicalOrder& order)
    : bytes_(memory->bytes()),
      device_(memory->device()),
      physical_(new PhysicalLayout{order, std::move(memory)}) {
  layout_counts().physical.fetch_add(1, std::memory_order_relaxed);
  retired().release();
  if (log_on(Log::layouts)) [[unlikely]]
    log_order("made in another order", order);
}

StorageImpl::~StorageImpl() {
  if (derived_.load(std::memory_order_relaxed)) delete_derived();
  PhysicalLayout* physical = physical_.load(std::memory_order_relaxed);
  bool was_logical = !physical;
  delete physical;
  if (foreign_) {
    if (*foreign_) (*foreign_)();
    return;
  }
  if (device_data_) memory_of(device_.type)->release(device_data_, bytes_, device_.index);
  if (data_ && was_logical) deallocate();
}

void StorageImpl::deallocate() { give_back(data_, bytes_, capacity_); }

// The blocks that owners retain. A block that its owner has not listed is only accessible to the owner.
class KeptBlocks {
 public:
  static KeptBlocks& all() {
    static auto* blocks = new KeptBlocks;
    return *blocks;
  }
  void add(RetainedBlock& b) {
    std::lock_guard lock(mutex_);
    owners_.push_back(&b);
    b.listed_ = true;
    bytes_ += b.capacity_;
    // Visits every block up to twice: a block that was taken since the last visit is skipped once.
    for (size_t looks = 2 * owners_.size(); bytes_ > kHeld && looks; --looks) {
      auto& other = *owners_[next_++ % owners_.size()];
      if (&other == &b || other.lately_.exchange(false, std::memory_order_relaxed)) continue;
      if (void* p = take_from(other)) give_block(p, other.capacity_, other.capacity_);
    }
  }
  void remove(RetainedBlock& b) {
    std::lock_guard lock(mutex_);
    std::erase(owners_, &b);
    b.listed_ = false;
    if (!b.lost_) bytes_ -= b.capacity_;
    b.lost_ = false;
  }
  void give_those_of(const Keeper* keeper) {
    std::lock_guard lock(mutex_);
    for (auto* b : owners_)
      if (void* p = b->keeper_ == keeper ? take_from(*b) : nullptr) give_block(p, b->capacity_, b->capacity_);
  }
  void give_all_to_system() {
    std::lock_guard lock(mutex_);
    for (auto* b : owners_)
      if (void* p = take_from(*b))
        if (!detail::blocks_have_owners() || !detail::give_to_owner(p)) give_to_system(p, b->capacity_);
  }

 private:
  void* take_from(RetainedBlock& b) {
    void* p = b.waiting_.exchange(nullptr, std::memory_order_acquire);
    if (!p) return nullptr;
    bytes_ -= b.capacity_;
    b.lost_ = true;
    return p;
  }
  static constexpr size_t kHeld = size_t(1) << 30;
  TableMutex mutex_;
  std::vector<RetainedBlock*> owners_;
  size_t next_ = 0, bytes_ = 0;
};

void* RetainedBlock::take(size_t bytes) {
  lately_.store(true, std::memory_order_relaxed);
  bool waits = waiting_.load(std::memory_order_relaxed);
  if (void* p = waits ? waiting_.exchange(nullptr, std::memory_order_acquire) : nullptr) {
    if (bytes <= capacity_ && capacity_ - bytes <= std::max(capacity_ / 2, kAlign)) [[likely]] {
      taken_ = p;
      bytes_ = bytes;
      count(int64_t(bytes), true);
      return p;
    }
    KeptBlocks::all().remove(*this);
    give_block(p, capacity_, capacity_);
  }
  if (listed_) KeptBlocks::all().remove(*this);
  capacity_ = class_bytes(class_of(bytes));
  taken_ = take_block(bytes, capacity_);
  bytes_ = bytes;
  count(int64_t(bytes));
  return taken_;
}

void RetainedBlock::give() {
  if (!taken_) return;
  count(-int64_t(bytes_));
  void* p = std::exchange(taken_, nullptr);
  if (keeper_ && keeper_->is_open()) {
    waiting_.store(p, std::memory_order_release);
    if (!listed_) [[unlikely]]
      KeptBlocks::all().add(*this);
    return;
  }
  if (listed_) KeptBlocks::all().remove(*this);
  give_block(p, capacity_, capacity_);
}

RetainedBlock::~RetainedBlock() {
  give();
  if (listed_) KeptBlocks::all().remove(*this);
  if (void* p = waiting_.load(std::memory_order_relaxed)) give_block(p, capacity_, capacity_);
}

void Keeper::close() {
  open_.store(false, std::memory_order_relaxed);
  KeptBlocks::all().give_those_of(this);
}

using Recycled = detail::FreeList<sizeof(StorageImpl), alignof(std::max_align_t), 1024>;
void* StorageImpl::operator new(size_t) { return Recycled::take(); }
void StorageImpl::operator delete(void* p) { Recycled::give(p); }

LayoutCounts& layout_counts() {
  static LayoutCounts counts;
  return counts;
}

namespace {

TableMutex& physical_layout_mutex() {
  static auto* m = new TableMutex;
  return *m;
}

// Copies elements of type T from strides `from` to strides `to`. Dimension `row` is innermost in one of them,
// dimension `column` in the other; 16 columns are copied at a time.
template <class T>
void put_in_order(const PhysicalOrder& o, const int64_t* from, const T* source, const int64_t* to,
                  T* target) {
  int rank = o.rank, row = rank - 1, column = o.order[rank - 1];
  int64_t numel = 1;
  for (int d = 0; d < rank; ++d) numel *= o.sizes[d];
  if (column == row) column = -1;
  int64_t columns = column < 0 ? 1 : o.sizes[column], n = o.sizes[row];
  int64_t row_from = from[row], row_to = to[row], column_from = column < 0 ? 0 : from[column],
          column_to = column < 0 ? 0 : to[column];
  Uninterrupted uninterrupted;  // callers hold the lock of physical layouts
  parallel_for(numel / (columns * n), std::max<int64_t>(1, 65536 / (columns * n)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t k = begin; k < end; ++k) {
                   int64_t rest = k;
                   const T* s = source;
                   T* t = target;
                   for (int d = rank; d-- > 0;) {
                     if (d == row || d == column) continue;
                     int64_t i = rest % o.sizes[d];
                     rest /= o.sizes[d];
                     s += i * from[d];
                     t += i * to[d];
                   }
                   for (int64_t c = 0; c < columns; c += 16) {
                     int64_t many = std::min<int64_t>(16, columns - c);
                     for (int64_t i = 0; i < n; ++i)
                       for (int64_t j = 0; j < many; ++j)
                         t[(c + j) * column_to + i * row_to] = s[i * row_from + (c + j) * column_from];
                   }
                 }
               });
}

// Moves elements between the logical layout and memory in order `o`.
void move_elements(const PhysicalOrder& o, const void* source, void* target, bool to_logical) {
  int64_t logical[8], memory[8], numel = 1, next = 1;
  for (int d = o.rank; d-- > 0; numel *= o.sizes[d]) logical[d] = numel;
  for (int k = o.rank; k-- > 0; next *= o.sizes[o.order[k]]) memory[o.order[k]] = next;
  auto move = [&]<class T>(T) {
    auto* s = static_cast<const T*>(source);
    auto* t = static_cast<T*>(target);
    to_logical ? put_in_order<T>(o, memory, s, logical, t) : put_in_order<T>(o, logical, s, memory, t);
  };
  switch (numel ? o.itemsize : 0) {
    case 0: break;
    case 1: move(uint8_t()); break;
    case 2: move(uint16_t()); break;
    case 4: move(uint32_t()); break;
    case 8: move(uint64_t()); break;
    default:
      internal_check(o.itemsize == 16) << "itemsize " << int(o.itemsize);
      move(std::array<uint64_t, 2>());
  }
}

}  // namespace

bool StorageImpl::physical_layout(PhysicalLayout& to) const {
  std::lock_guard lock(physical_layout_mutex());
  auto* h = physical_.load(std::memory_order_relaxed);
  if (h) to = *h;
  return h;
}

StorageImpl::PhysicalLayout* StorageImpl::restore_locked() {
  PhysicalLayout* old = physical_.load(std::memory_order_relaxed);
  if (!old) return nullptr;
  // An order without an item size describes no elements; a released storage has it until it gets a size again.
  bool released = !old->order.itemsize && !old->memory->is_foreign();
  runtime_check(!released || bytes_, "data_ptr")
      << "The tensor has a non-zero number of elements, but its data is not allocated: its storage was resized to 0 bytes"
      << hint("untyped_storage().resize_(bytes) allocates memory again");
  runtime_check(released || old->order.itemsize, "data_ptr")
      << "Cannot access data pointer of Tensor that doesn't have storage: "
      << (old->memory->data() ? "its layout is sparse" : "it is a wrapper of other tensors")
      << hint(old->memory->data() ? "to_dense() gives a tensor with memory" : "ask those that it is made of");
  allocate();
  move_elements(old->order, old->memory->data(), data_, true);
  layout_counts().restored.fetch_add(1, std::memory_order_relaxed);
  if (log_on(Log::layouts)) [[unlikely]]
    log_order("restored to the logical order", old->order);
  physical_.store(nullptr, std::memory_order_release);
  return old;
}

void StorageImpl::restore_logical() {
  std::unique_ptr<PhysicalLayout> done;  // freed after the lock
  std::lock_guard lock(physical_layout_mutex());
  done.reset(restore_locked());
}

void StorageImpl::settle(const PhysicalOrder& order, const Ref<StorageImpl>& written) {
  std::unique_ptr<PhysicalLayout> done;
  std::lock_guard lock(physical_layout_mutex());
  auto* now = physical_.load(std::memory_order_relaxed);
  if (now && now->memory == written) return;
  done.reset(restore_locked());
  move_elements(order, written->data(), data_, true);
}

bool StorageImpl::reorder(const PhysicalOrder& order) {
  bool releases = !order.itemsize;  // the elements too (tensor/resize.h)
  if (foreign_ || (!releases && pinned_.load(std::memory_order_relaxed))) return false;
  std::lock_guard lock(physical_layout_mutex());
  if (!is_logical() || (!releases && !data_)) return false;
  auto memory = make_ref<StorageImpl>(releases ? 0 : bytes_, device_);
  if (!releases) {
    move_elements(order, data_, memory->data(), false);
    layout_counts().reordered.fetch_add(1, std::memory_order_relaxed);
    if (log_on(Log::layouts)) [[unlikely]]
      log_order("copied into another order", order);
  }
  auto layout = std::make_unique<PhysicalLayout>(PhysicalLayout{order, std::move(memory)});
  retired().release();
  if (!releases && threads_with_storages.load() > 1) {
    retired().keep(data_, bytes_, capacity_);  // data_ remains valid for threads that are about to read it
  } else if (data_) {
    deallocate();
    data_ = nullptr;
  }
  if (releases) bytes_ = 0;
  physical_.store(layout.release(), std::memory_order_release);
  return true;
}

MemoryStats memory_stats() {
  flush_counts();
  return {current_bytes, peak_bytes, allocation_count};
}
void reset_peak_memory() {
  flush_counts();
  peak_bytes = current_bytes.load();
  reserved_peak = reserved_bytes.load();
}

AllocatorStats allocator_stats() {
  flush_counts();
  int64_t now = current_bytes, total = total_bytes, reserved = reserved_bytes, reserved_ever = reserved_total;
  auto [bytes, blocks] = pool().waiting();
  return {{now, peak_bytes, total, total - now},
          {reserved, reserved_peak, reserved_ever, reserved_ever - reserved},
          allocation_count,
          bytes,
          blocks,
          retries,
          failures};
}

void empty_cache() {
  drop_caches();
  KeptBlocks::all().give_all_to_system();
  for (int k = 0; k < kClasses; ++k)
    while (void* p = local.blocks[k].pop()) give_to_system(p, class_bytes(k));
  pool().release_all();
  malloc_trim(0);
}

}  // namespace facula
