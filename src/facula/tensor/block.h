// Per-thread free lists of small memory blocks: bounded, and safe for blocks that another thread frees.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>

namespace facula::detail {

// Thread state that every allocation uses. Shared libraries access it without a call, so it has to be small. It is
// trivially destructible; Closer empties the lists when the thread ends.
#define FACULA_FAST_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) thread_local

// Free blocks of one size. `limit` bounds their number; it is 0 after the thread has ended.
struct BlockList {
  struct Block {
    Block* next;
  };
  Block* head;
  uint32_t count;
  bool armed, closed;

  void* pop() {
    auto* b = head;
    if (b) {
      head = b->next;
      --count;
    }
    return b;
  }
  bool push(void* p, uint32_t limit) {
    if (count >= limit || closed) return false;
    auto* b = static_cast<Block*>(p);
    b->next = head;
    head = b;
    ++count;
    return true;
  }
  void close(size_t align) {
    closed = true;
    while (void* p = pop()) ::operator delete(p, std::align_val_t(align));
  }
};

// The free list of a class of objects, for its operator new and delete.
template <size_t Bytes, size_t Align, uint32_t Limit>
class FreeList {
 public:
  static void* take() {
    if (void* p = list_.pop()) return p;
    arm();
    return ::operator new(Bytes, std::align_val_t(Align));
  }
  static void give(void* p) {
    if (!list_.armed) [[unlikely]]
      arm();
    if (!list_.push(p, Limit)) ::operator delete(p, std::align_val_t(Align));
  }

 private:
  struct Closer {
    ~Closer() { list_.close(Align); }
  };
  static void arm() {
    if (list_.armed) return;
    static thread_local Closer closer;
    list_.armed = (void(&closer), true);
  }
  static inline constinit FACULA_FAST_THREAD_LOCAL BlockList list_{};
};

// Objects of a final class T : Recycled<T> are allocated from such a list.
template <class T>
struct Recycled {
  static void* operator new(size_t) { return FreeList<sizeof(T), alignof(std::max_align_t), 1024>::take(); }
  static void operator delete(void* p) { FreeList<sizeof(T), alignof(std::max_align_t), 1024>::give(p); }
};

}  // namespace facula::detail
