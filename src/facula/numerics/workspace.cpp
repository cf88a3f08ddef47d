#include "facula/numerics/workspace.h"

#include <new>

namespace facula::numerics {

namespace {

constexpr auto kAlign = std::align_val_t(64);
constexpr MemorySource kHeap{
    [](size_t bytes, size_t&) { return ::operator new(bytes, kAlign); },
    [](void* block, size_t, size_t) { ::operator delete(block, kAlign); },
};
constinit std::atomic<const MemorySource*> source{&kHeap};

}  // namespace

void set_memory_source(const MemorySource& s) { source.store(&s, std::memory_order_release); }
const MemorySource& memory_source() { return *source.load(std::memory_order_acquire); }

}  // namespace facula::numerics
