// Decides how the loads and stores of a loop over lanes access memory. A target's printer emits what is decided here.
#pragma once
#include <optional>

#include "facula/loop/lanes.h"

namespace facula::schedule {

struct LaneAccess {
  enum Kind : uint8_t {
    uniform,     // one element for all lanes
    contiguous,  // neighbouring elements in the order of the lanes
    own,         // an array with one element per lane, stored side by side
    reversed,    // neighbouring elements in reversed order
    spaced,      // every `apart`-th element, shuffled out of whole vectors
    repeated,    // neighbouring elements that several lanes share, loaded once and shuffled
    gathered,  // by the machine's gather or scatter instruction, which on most machines pays only under a mask
    each,      // by one load or store per lane
    packed,    // counted lanes side by side, then the last lane once more, which the next vector overwrites
  } kind;
  loop::Expr
      stride{};       // gathered, each: distance in elements between lanes; null: the offsets are not affine
  int64_t apart = 0;  // spaced
  loop::Repeated lanes{1, 0};  // repeated: how many lanes read an element together
  bool has_own_offsets() const { return (kind == gathered || kind == each) && !stride.get(); }
};
// Facts about the code around an access.
struct AccessPlace {
  bool loads = true;     // true for a load, false for a store
  bool masked = false;   // some lanes may not perform the access
  bool gathers = false;  // the machine's gather is faster than one load per lane
  bool packs = false;    // the machine can compress lanes, and no condition guards the access
};
// True if the accumulate statement `adds` counts how often a condition holds.
bool counts(loop::NestFacts& facts, const loop::Statement& adds);
// The accumulator of such a count if `offset` is its value before the current lane, that is, n - x after n += x.
std::optional<int> count_before(loop::LaneScope& scope, loop::Expr offset);
// The access to buffer or array `slot` in the lanes of `scope` at this offset. For complex buffers it describes the
// parts.
LaneAccess lane_access(loop::LaneScope& scope, int slot, loop::Expr offset, AccessPlace place);

// The number of real numbers in an element: 2 for complex dtypes.
int64_t parts_of(const loop::NestFacts& facts, int slot);

// Recognises an access to rows of `count` elements that are stored one behind the other, one row per lane: whole
// vectors are loaded and transposed, so that step `var` of an unrolled loop gets its element of each row (and
// likewise for stores). Gives the offset of the first element, or null for any other access.
loop::Expr start_of_rows(loop::LaneScope& scope, int slot, loop::Expr offset, int var, int64_t count,
                         bool loads);

// True if these store the real and imaginary parts of complex numbers that are contiguous across lanes.
bool stores_pairs(loop::LaneScope& scope, const loop::Statement& re, const loop::Statement& im);
// Recognises loads of the two parts, of dtype `d`, of contiguous complex numbers: 1 in the order of the lanes, -1 in
// reversed order, else 0.
int loads_pairs(loop::LaneScope& scope, loop::Expr re, loop::Expr im, DType d);
// The number of statements from the k-th on that store neighbouring elements, one for each step of the lanes' stride,
// so that they can be interleaved into whole vectors; else 0.
size_t stores_of_neighbours(loop::LaneScope& scope, const loop::Block& block, size_t k);

// True if e is a bfloat16 value already, so that a store need not round it.
bool is_bfloat16(loop::Expr e);

}  // namespace facula::schedule
