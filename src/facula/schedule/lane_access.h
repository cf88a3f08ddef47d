// How loads and stores in the lanes of a loop reach memory. It is decided here what is done; a target's printer does it.
#pragma once
#include <optional>

#include "facula/loop/lanes.h"

namespace facula::schedule {

struct LaneAccess {
  enum Kind : uint8_t {
    uniform,     // one element for all lanes
    contiguous,  // neighbours, the first lane's first
    own,         // an array of the lanes: for each lane an element that is there, beside each other
    reversed,    // neighbours, the last lane's first
    spaced,      // every `apart`-th element, shuffled out of whole vectors
    repeated,    // neighbours that several lanes read each, shuffled out of what is read once
    gathered,    // by the machine's gather or scatter, which on most machines is quicker under a mask only
    each,        // by a load or store for every lane
    packed,  // the lanes that a scan counts, one beside the other, and the last lane of all, which the next one overwrites
  } kind;
  loop::Expr stride{};  // gathered, each: elements from a lane to the next; null: offsets of no simple motion
  int64_t apart = 0;    // spaced
  loop::Repeated lanes{1, 0};  // repeated: those that read an element together
  bool has_own_offsets() const { return (kind == gathered || kind == each) && !stride.get(); }
};
// What the code around an access is at that place.
struct AccessPlace {
  bool loads = true;     // or stores
  bool masked = false;   // some lanes may not
  bool gathers = false;  // the machine's gather is quicker than a load for each lane
  bool packs = false;    // the machine moves some lanes together, and no condition guards the access
};
// Does a statement that adds count conditions?
bool counts(loop::NestFacts& facts, const loop::Statement& adds);
// The accumulator of such, if `offset` is what it had before the lane: n - x behind n += x.
std::optional<int> count_before(loop::LaneScope& scope, loop::Expr offset);
// Of buffer or array `slot` in the lanes of `scope`, by one offset or another in each. Complex buffers by their parts.
LaneAccess lane_access(loop::LaneScope& scope, int slot, loop::Expr offset, AccessPlace place);

// Real numbers of an element in memory: 2 of a complex one.
int64_t parts_of(const loop::NestFacts& facts, int slot);

// Rows of `count` elements, one row a lane, that lie one after the other: whole vectors are read and turned, so that step
// `var` of an unrolled loop has its element of each; they are written likewise. The offset of the first element; null if
// the access is none to such rows.
loop::Expr start_of_rows(loop::LaneScope& scope, int slot, loop::Expr offset, int var, int64_t count,
                         bool loads);

// Are they stores of both parts of complex numbers that lie beside each other?
bool stores_pairs(loop::LaneScope& scope, const loop::Statement& re, const loop::Statement& im);
// Are they loads of such, of parts of dtype `d`? 1, or -1 if the last lane's come first; else 0.
int loads_pairs(loop::LaneScope& scope, loop::Expr re, loop::Expr im, DType d);
// How many statements from the k-th on store neighbours, as many as lanes are apart, so that they are woven into whole
// vectors; else 0.
size_t stores_of_neighbours(loop::LaneScope& scope, const loop::Block& block, size_t k);

// Is it a bfloat16 already, so that a store has nothing to round?
bool is_bfloat16(loop::Expr e);

}  // namespace facula::schedule
