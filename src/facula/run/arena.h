// Arena: one block of memory in which the values of a plan lie that do not live at the same time. A run takes it once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "facula/run/plan.h"

namespace facula::run {

// A value is there from the step that makes it to the last one that reads it.
struct Lifetime {
  size_t bytes;
  size_t first, last;  // steps, both included
};

struct Packing {
  std::vector<int64_t> offsets;  // of each value, multiples of 64
  size_t bytes = 0;
};
// Largest first, each into the smallest gap that it fits ("greedy by size" of Pisarchyk and Lee, "Efficient Memory
// Management for Deep Neural Net Inference", 2020). No two values overlap in both time and memory.
Packing pack(std::span<const Lifetime> values);

// The most bytes that live at one of `steps` steps: no plan holds less.
size_t liveness_bound(std::span<const Lifetime> values, size_t steps);

// By value number: is it allocated for each run? Others than the plan come to hold it, or it may come to lie in an order
// that its storage alone knows (docs/layouts.md), which a part of an arena cannot. `out`: given destinations.
std::vector<bool> values_apart(const Plan& plan, const Outline& outline, const NumberedGraph& g,
                               std::span<const Tensor> out);
// Says where all that the steps of a plan allocate lies, and what a run holds. In the arena lies what nobody but the
// plan's kernels and libraries gets to hold, the small before the large, as long as that costs little memory: an arena is
// there from the beginning of a run to its end, also while results take the place of what died. `outline`: the plan's,
// which is told which values lie there.
void place_in_arena(Plan& plan, Outline& outline, const std::vector<bool>& apart);
// The same for other sizes of the plan's outline. False: what lies in its arena costs too much memory for these.
bool place_in_arena(Plan& plan);

}  // namespace facula::run
