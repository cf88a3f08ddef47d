#include "facula/schedule/lane_access.h"

#include "facula/loop/lane_access.h"

namespace facula::schedule {
namespace {

using loop::Access;
using loop::Block;
using loop::Expr;
using loop::LanePlace;
using loop::Statement;
using AK = Access::Kind;
using SK = Statement::Kind;

// True if the elements have a size that machines gather, and index tensors select them.
bool is_picked(loop::LaneScope& scope, int slot, Expr offset) {
  bool indexed = false;
  loop::visit(scope.facts().spelled_out(offset),
              [&](Expr x) { indexed |= x->kind == loop::Kind::check && x->slot; });  // `within`
  return indexed && itemsize(real_of(scope.facts().memory(slot))) >= 4;
}

class Deciding {
 public:
  Deciding(const LanePlace& at, const loop::LaneLimits& limits)
      : at_(at), scope_(*at.scope), limits_(limits) {}

  void operator()(Block& block, size_t k) const {
    auto& s = block[k];
    s.accesses.clear();
    if (s.kind == SK::store && !loop::is_stored_before(block, k)) {
      Access a = store(block, k);
      if (!is_direct(a)) s.accesses.push_back(a);
    }
    bool moves = loop::moves_pair(block, k);
    loop::each_load(s, [&](Expr e) {
      if (moves && same(e, s.values[0])) return;
      Access a = one(e->slot, e->args[0], true);
      a.slot = e->slot;
      a.offset = e->args[0];
      for (auto& b : s.accesses)
        if (b.offset && b.slot == a.slot && same(b.offset, a.offset)) return;
      if (!is_direct(a)) s.accesses.push_back(a);
    });
  }

 private:
  static bool is_direct(const Access& a) {
    return a.rows < 0 && (a.kind == AK::uniform || a.kind == AK::contiguous || a.kind == AK::own);
  }

  Access store(const Block& block, size_t k) const {
    auto& s = block[k];
    if (k + 1 < block.size() && loop::stores_pairs(scope_, s, block[k + 1])) {
      DType d = real_of(scope_.facts().memory(s.buffer));
      int moved = loop::loads_pairs(scope_, s.values[0], block[k + 1].values[0], d);
      return {.kind = AK::pairs, .count = 2, .moved = moved};
    }
    if (int n = loop::stores_of_neighbours(scope_, block, k)) return {.kind = AK::neighbours, .count = n};
    return one(s.buffer, s.offset, false);
  }

  Access one(int slot, Expr offset, bool load) const {
    Access a = apart_from_rows(slot, offset, load);
    bool rows =
        at_.steps && !at_.guarded && !at_.masked &&
        loop::start_of_rows(scope_, slot, offset, at_.steps->var, at_.steps->extent->value.to_int(), load);
    if (rows) a.rows = at_.steps->var;
    return a;
  }
  Access apart_from_rows(int slot, Expr offset, bool load) const {
    if (auto direct = loop::direct_access(scope_, slot, offset)) return {.kind = *direct};
    if (slot < 0 && scope_.is_lane_array(-1 - slot)) return {.kind = AK::each};
    int64_t parts = loop::parts_of(scope_.facts(), slot);
    loop::Motion m = scope_.motion(offset);
    if (m.simple) {
      int64_t apart = m.constant().value_or(0) * parts;
      if (load && apart == -1) return {.kind = AK::reversed};
      if (load && apart >= 2 && apart <= loop::kFarthest) return {.kind = AK::spaced, .count = int(apart)};
      return {.kind = AK::each};
    }
    if (!load && packs(slot) && loop::count_before(scope_, offset)) return {.kind = AK::packed};
    if (auto r = load && parts == 1 ? scope_.repeated(offset) : std::nullopt)
      return {.kind = AK::repeated, .count = int(r->times), .from = int(r->from)};
    return {.kind = load && limits_.gathers && is_picked(scope_, slot, offset) ? AK::gathered : AK::each};
  }
  // True if the machine can compress a vector of these elements, and only the tail masks lanes.
  bool packs(int slot) const {
    DType d = scope_.facts().memory(slot);
    return !at_.masked && !is_complex(d) && itemsize(d) >= 4 &&
           itemsize(d) * scope_.lanes == limits_.packed_bytes;
  }

  const LanePlace& at_;
  loop::LaneScope& scope_;
  const loop::LaneLimits& limits_;
};

}  // namespace

void state_accesses(loop::NestFacts& facts, Block& block, const loop::LaneLimits& limits) {
  loop::each_in_lanes(facts, block,
                      [&](const LanePlace& at, Block& b, size_t k) { Deciding(at, limits)(b, k); });
}

}  // namespace facula::schedule
