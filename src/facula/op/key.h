// The attributes of a call (everything but its tensors) as words: equal words mean equal attributes.
#pragma once
#include <span>

#include "facula/base/small_vector.h"
#include "facula/op/value.h"

namespace facula::graph {
using Words = SmallVector<uint64_t, 48>;
void append_attributes(Words& key, std::span<const op::Value> args);
}  // namespace facula::graph
