// Offsets of values in one arena. Some share memory with a value that is computed from them.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "facula/run/arena.h"

namespace facula::embed {

// Two values that share memory at step `at`, which computes one from the other.
struct Tie {
  size_t inner, outer, at;
  // False: `outer` is computed from `inner`, which may be the last part of it. True: `inner` replaces `outer`, whose
  // live range ends there, and has to begin at the same offset.
  bool replaces = false;
};

// Packs the largest value first, each as low as possible, with the values of its ties.
run::Packing pack(std::span<const run::Lifetime> values, std::span<const Tie> ties);

}  // namespace facula::embed
