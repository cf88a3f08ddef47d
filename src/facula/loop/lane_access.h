// Facts about the accesses of loops over lanes: what is direct, which other accesses are possible, and where statements
// stand. schedule/lane_access.h chooses from the possible ones, `verify` refuses the others, and targets emit the chosen.
#pragma once
#include <functional>
#include <optional>
#include <utility>

#include "facula/loop/lanes.h"

namespace facula::loop {

inline constexpr int kFarthest =
    8;  // a larger distance between loaded elements does not pay for whole vectors
inline constexpr int kMostNeighbours =
    16;  // stores that become whole vectors: a square of 16 lanes is turned

// The number of real numbers in an element: 2 for complex dtypes.
int64_t parts_of(const NestFacts& facts, int slot);

// The access to buffer or array `slot` if it is direct; null if it has to be stated.
std::optional<Access::Kind> direct_access(LaneScope& scope, int slot, Expr offset);

// The position of a statement in a loop over lanes.
struct LanePlace {
  LaneScope* scope = nullptr;
  const Statement* steps = nullptr;  // the unrolled loop around, if it is exactly one
  int unrolled = 0;                  // number of unrolled loops around
  bool guarded = false;              // in a condition, or in a serial loop inside of an unrolled one
  bool masked = false;               // some lanes may skip the statement
};
// Calls f(place, block, k) for the k-th statement of each block in loops over lanes. `AnyBlock` is a Block or a const one.
template <class AnyBlock, class F>
void each_in_lanes(NestFacts& facts, AnyBlock& block, F&& f, const LanePlace& at = {}) {
  for (size_t k = 0; k < block.size(); ++k) {
    auto& s = block[k];
    if (at.scope) f(at, block, k);
    LanePlace in = at;
    std::optional<LaneScope> own;
    if (s.kind == Statement::Kind::condition) {
      (at.scope && at.scope->varies(s.values[0]) ? in.masked : in.guarded) = true;
    } else if (s.lanes.width) {
      own.emplace(facts, s);
      in = {.scope = &*own, .guarded = at.guarded};
    } else if (s.loop == LoopKind::unrolled) {
      in.steps = in.unrolled++ ? nullptr : &s;
    } else if (s.kind == Statement::Kind::loop) {
      if (at.scope && at.scope->varies(s.extent)) in.masked = true;
      else in.guarded |= at.unrolled > 0;
    }
    each_in_lanes(facts, s.body, f, in);
  }
}
// Calls f for every load of the statement's expressions, once for each expression that has it.
void each_load(const Statement& s, const std::function<void(Expr load)>& f);
// True if a statement before the k-th one of the block stores both of them together.
bool is_stored_before(const Block& block, size_t k);
// True if the k-th statement stores a part of a pair that it loads as a pair.
bool moves_pair(const Block& block, size_t k);

// The access of `s` to `slot` at this offset: the one that is stated, or the direct one. `load` is false for the store.
Access access_of(LaneScope& scope, const Statement& s, int slot, Expr offset, bool load);

// ---- what is possible

// True if the accumulate statement counts how often a condition holds.
bool counts(NestFacts& facts, const Statement& adds);
// The accumulator of a count of conditions, if `offset` is its value before the current lane: n - x after n += x.
std::optional<int> count_before(LaneScope& scope, Expr offset);

// For an access to rows of `count` elements that are stored one behind the other, one row per lane, so that step `var`
// of an unrolled loop gets its element of each row: the offset of the first element. Null for any other access.
Expr start_of_rows(LaneScope& scope, int slot, Expr offset, int var, int64_t count, bool loads);

// True if these store the real and imaginary parts of complex numbers that are contiguous across lanes.
bool stores_pairs(LaneScope& scope, const Statement& re, const Statement& im);
// Recognises loads of the two parts, of dtype `d`, of contiguous complex numbers: 1 in the order of the lanes, -1 in
// reversed order, else 0.
int loads_pairs(LaneScope& scope, Expr re, Expr im, DType d);
// The number of statements from the k-th on that store neighbouring elements, one for each step of the lanes' stride,
// so that they can be interleaved into whole vectors; else 0.
int stores_of_neighbours(LaneScope& scope, const Block& block, size_t k);

// The reason why the k-th statement of a block, at this place, cannot perform its accesses as it states; null if it can.
const char* impossible_access(const LanePlace& place, const Block& block, size_t k);

}  // namespace facula::loop
