// Keys of caches of calls, as words. The attributes of a call are all of its arguments except tensors: equal words
// mean equal attributes.
#pragma once
#include <span>

#include "facula/base/hash.h"
#include "facula/base/small_vector.h"
#include "facula/op/value.h"

namespace facula::op {

using Words = SmallVector<uint64_t, 48>;
struct WordsHash {
  // Multilinear hashing: sums products of pairs of words, each word plus a number that depends on its position. The
  // products do not wait for each other.
  size_t operator()(const Words& k) const {
    constexpr uint64_t kStep = 0x9e3779b97f4a7c15ull;
    const uint64_t* w = k.data();
    size_t n = k.size();
    uint64_t sum = n, at = 0xd6e8feb86659fd93ull;
    for (; n >= 2; n -= 2, w += 2, at += 2 * kStep) sum += (w[0] + at) * (w[1] + at + kStep);
    if (n) sum += (*w + at) * kStep;
    return mix(sum, sum >> 32);
  }
};
void append_attributes(Words& key, std::span<const Value> args);

}  // namespace facula::op
