// The attributes of a call (everything but its tensors) as words: equal words mean equal attributes.
#pragma once
#include <span>
#include <vector>

#include "facula/op/value.h"

namespace facula::graph {
void append_attributes(std::vector<uint64_t>& key, std::span<const op::Value> args);
}  // namespace facula::graph
