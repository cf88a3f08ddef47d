// PyTorch's names for allocators of users: facula/tensor/caching_allocator.h.
#pragma once
#include "facula/tensor/caching_allocator.h"

namespace c10 {

using CPUCachingAllocator = facula::CachingAllocator;
using WithCPUCachingAllocatorGuard = facula::WithCachingAllocator;

inline bool ThreadLocalCachingAllocatorEnabled() { return facula::caching_allocator(); }
inline CPUCachingAllocator* GetThreadLocalCachingAllocator() { return facula::caching_allocator(); }
// An allocator for the whole program, which is never destroyed.
inline CPUCachingAllocator* GetDefaultCPUCachingAllocator() {
  static auto* allocator = new CPUCachingAllocator;
  return allocator;
}

}  // namespace c10
