// Offsets of values in one arena. Some share memory with a value that is computed from them.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "facula/run/arena.h"

namespace facula::embed {

// Value `inner` may be the last part of value `outer`, which is computed from it at step `at`.
struct Tie {
  size_t inner, outer, at;
};

// Packs like run::pack, and lets the values of ties share memory where that is possible and needs less.
run::Packing pack(std::span<const run::Lifetime> values, std::span<const Tie> ties);

}  // namespace facula::embed
