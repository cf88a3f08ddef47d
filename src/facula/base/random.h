// Counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
// A generator is a seed and an offset; an operator takes as many offsets as it has elements, so the numbers depend
// neither on threads nor on the vector width. The `random` node of the loop IR is the same function.
#pragma once
#include <array>
#include <cstdint>

#include "facula/base/intrusive.h"

namespace facula {

// 128 random bits for (seed, counter).
std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter);

// The semantics of the loop IR's random(seed, counter): word counter % 4 of block counter / 4.
inline uint32_t random_bits(uint64_t seed, uint64_t counter) {
  return philox(seed, counter / 4)[counter % 4];
}

class Generator : public RefCounted {
 public:
  explicit Generator(uint64_t seed = 0) : seed_(seed) {}
  uint64_t seed() const { return seed_; }
  uint64_t offset() const { return offset_; }
  void manual_seed(uint64_t seed) {
    seed_ = seed;
    offset_ = 0;
  }
  void set_state(uint64_t seed, uint64_t offset) {
    seed_ = seed;
    offset_ = offset;
  }
  // Reserves n counters, rounded up to a multiple of four; returns the first one.
  uint64_t take(uint64_t n) {
    uint64_t at = offset_;
    offset_ += (n + 3) / 4 * 4;
    return at;
  }

 private:
  uint64_t seed_, offset_ = 0;
};
Generator& default_generator();  // the CPU's generator

}  // namespace facula
