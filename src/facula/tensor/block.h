// A per-thread free list of small memory blocks of one size; bounded, and safe for blocks freed by another thread.
#pragma once
#include <cstddef>
#include <new>

namespace facula::detail {

template <size_t Bytes, size_t Align, size_t Limit> class FreeList {
 public:
  static void* take() {
    auto& l = list_;
    if (l.head) {
      auto* b = l.head;
      l.head = b->next;
      --l.count;
      return b;
    }
    return ::operator new(Bytes, std::align_val_t(Align));
  }
  static void give(void* p) {
    auto& l = list_;
    if (l.count >= Limit || l.closed) return ::operator delete(p, std::align_val_t(Align));
    auto* b = static_cast<Block*>(p);
    b->next = l.head;
    l.head = b;
    ++l.count;
  }

 private:
  struct Block { Block* next; };
  struct List {
    Block* head = nullptr;
    size_t count = 0;
    bool closed = false;  // the thread is ending: its list is gone
    ~List() {
      closed = true;
      while (head) {
        auto* b = head;
        head = b->next;
        ::operator delete(b, std::align_val_t(Align));
      }
    }
  };
  static inline thread_local List list_;
};

}  // namespace facula::detail
