// Allocators of users.
#include "facula/tensor/caching_allocator.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "facula/base/error.h"
#include "facula/tensor/memory.h"
#include "facula/tensor/tensor.h"

namespace facula {
namespace {

Tensor bytes(int64_t n) {
  int64_t sizes[] = {n};
  Tensor t = Tensor::empty(IntSpan(sizes, 1), DType::UInt8);
  std::memset(t.data_ptr(), 1, size_t(n));
  return t;
}

// Memory that is not the pool's.
class Counting : public CachingAllocator {
 public:
  void* allocate(size_t n) override {
    ++taken;
    return std::aligned_alloc(64, (n + 63) / 64 * 64);
  }
  void free(void* block) override {
    ++given;
    std::free(block);
  }
  int taken = 0, given = 0;
};

TEST(CachingAllocator, GivesTheSameBlocksAgain) {
  CachingAllocator allocator;
  for (int64_t n : {1, 64, 1000, 65536, 65537, 1 << 20}) {
    WithCachingAllocator scope(&allocator);
    void* first = bytes(n).data_ptr();
    EXPECT_EQ(bytes(n).data_ptr(), first) << n;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  }
  EXPECT_EQ(caching_allocator(), nullptr);
}

TEST(CachingAllocator, ReceivesItsBlocksFromOtherThreadsAndAfterTheScope) {
  Counting allocator;
  {
    Tensor outside = bytes(100), t;
    {
      WithCachingAllocator scope(&allocator);
      t = bytes(100);
      Tensor large = bytes(1 << 20);
      std::thread([moved = std::move(large)]() mutable { moved = Tensor(); }).join();
      outside = Tensor();  // a block of the pool
      EXPECT_EQ(allocator.given, 1);
    }
    EXPECT_EQ(allocator.taken, 2);
  }
  EXPECT_EQ(allocator.given, 2);
  EXPECT_FALSE(detail::blocks_have_owners());
}

TEST(CachingAllocator, LeavesTensorsThatOutliveItToThePool) {
  Tensor t, recorded;
  int64_t reserved = allocator_stats().reserved_bytes.current;
  {
    CachingAllocator allocator;
    WithCachingAllocator scope(&allocator);
    t = bytes(1 << 20);
    recorded = bytes(1 << 20);
    CachingAllocator::record_free(recorded.data_ptr());
    bytes(1 << 22);
  }
  EXPECT_FALSE(detail::blocks_have_owners());
  void* block = t.data_ptr();
  t = Tensor();
  EXPECT_EQ(bytes(1 << 20).data_ptr(), block);
  recorded = Tensor();
  empty_cache();
  EXPECT_LE(allocator_stats().reserved_bytes.current, reserved);
}

TEST(CachingAllocator, NestsScopesAndRefusesUnknownBlocks) {
  CachingAllocator outer, inner;
  WithCachingAllocator a(&outer);
  {
    WithCachingAllocator b(&inner);
    EXPECT_EQ(caching_allocator(), &inner);
    WithCachingAllocator c(nullptr);
    EXPECT_EQ(caching_allocator(), nullptr);
  }
  EXPECT_EQ(caching_allocator(), &outer);
  void* block = outer.allocate(10);
  EXPECT_THROW(inner.free(block), Error);
  outer.free(block);
  EXPECT_THROW(outer.free(block), Error);
}

}  // namespace
}  // namespace facula
