// Arena: one block of memory that a run allocates for the plan's intermediates. Intermediates whose live ranges do not overlap
// share memory in it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "facula/run/plan.h"

namespace facula::run {

// The live range of a value: from the step that computes it to the last step that reads it.
struct Lifetime {
  size_t bytes;
  size_t first, last;  // steps, inclusive
};

struct Packing {
  std::vector<int64_t> offsets;  // by value, in bytes, multiples of 64
  size_t bytes = 0;
};
// Assigns offsets so that no two values overlap in both time and memory: the largest value first, each into the smallest gap
// that it fits ("greedy by size" of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
Packing pack(std::span<const Lifetime> values);

// The largest number of bytes that are live at one of `steps` steps, a lower bound for every plan.
size_t liveness_bound(std::span<const Lifetime> values, size_t steps);

// By value number: whether each run allocates the value apart from the arena, because something outside of the plan will refer
// to it, or because its storage may change to a packed layout (docs/layouts.md), which part of an arena cannot. `out`: the
// caller's destinations.
std::vector<bool> values_apart(const Plan& plan, const Outline& outline, const NumberedGraph& g,
                               std::span<const Tensor> out);
// Decides for every value that the plan's steps allocate whether it is in the arena, and at which offset; computes the memory
// of a run. Only values that nothing outside of the plan refers to may be in the arena. The small ones are, and larger ones as
// long as that raises the peak little: an arena exists for a whole run, so its bytes are also in use while results are
// allocated. Writes the decision to `outline`, which is the plan's.
void place_in_arena(Plan& plan, Outline& outline, const std::vector<bool>& apart);
// The same for other sizes of the same outline. False if the outline's choice of values raises the peak too much for these.
bool place_in_arena(Plan& plan);

}  // namespace facula::run
