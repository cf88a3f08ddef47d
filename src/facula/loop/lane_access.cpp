#include "facula/loop/lane_access.h"

#include <algorithm>

#include "facula/loop/simplify.h"

namespace facula::loop {

using SK = Statement::Kind;
using AK = Access::Kind;

namespace {

bool is_beside(LaneScope& scope, Expr offset) { return scope.motion(offset).constant() == 1; }

const Access* stated(const Statement& s, int slot, Expr offset, bool load) {
  for (auto& a : s.accesses)
    if (load ? a.slot == slot && same(a.offset, offset) : a.offset.get() == nullptr) return &a;
  return nullptr;
}

bool together(AK kind) { return kind == AK::pairs || kind == AK::neighbours; }

}  // namespace

int64_t parts_of(const NestFacts& facts, int slot) { return is_complex(facts.memory(slot)) ? 2 : 1; }

std::optional<AK> direct_access(LaneScope& scope, int slot, Expr offset) {
  if (slot < 0 && scope.is_lane_array(-1 - slot))
    return scope.varies(offset) ? std::nullopt : std::optional(AK::own);
  auto stride = scope.motion(offset).constant();
  if (stride == 0) return AK::uniform;
  if (stride == 1 && parts_of(scope.facts(), slot) == 1) return AK::contiguous;
  return {};
}

void each_load(const Statement& s, const std::function<void(Expr load)>& f) {
  each_expression(s, [&](Expr root) {
    visit(root, [&](Expr e) {
      if (e->kind == Kind::load) f(e);
    });
  });
}

bool is_stored_before(const Block& block, size_t k) {
  for (size_t j = k; j-- > 0 && k - j < size_t(kMostNeighbours);)
    if (auto* a = stated(block[j], 0, {}, false); a && together(a->kind) && j + size_t(a->count) > k)
      return true;
  return false;
}

bool moves_pair(const Block& block, size_t k) {
  for (size_t j = k + 1; j-- > 0 && k - j < 2;)
    if (auto* a = stated(block[j], 0, {}, false); a && a->kind == AK::pairs && a->moved) return true;
  return false;
}

Access access_of(LaneScope& scope, const Statement& s, int slot, Expr offset, bool load) {
  if (auto* a = stated(s, slot, offset, load)) return *a;
  auto direct = direct_access(scope, slot, offset);
  internal_check(direct.has_value()) << "a statement in lanes does not state how it reaches "
                                     << print(offset);
  return {.kind = *direct};
}

// ---- what is possible

bool counts(NestFacts& facts, const Statement& adds) {
  Expr one = adds.values[0];
  if (one->kind == Kind::local) one = facts.lasting_definition(one->slot);
  return adds.monoid == Monoid::sum && one && one->kind == Kind::cast && one->args[0].dtype() == DType::Bool;
}

std::optional<int> count_before(LaneScope& scope, Expr offset) {
  if (!is_call(offset, Fn::sub) || offset->args[0]->kind != Kind::local) return {};
  auto it = scope.accumulators().find(offset->args[0]->slot);
  bool before = it != scope.accumulators().end() && same(it->second->values[0], offset->args[1]);
  return before && counts(scope.facts(), *it->second) ? std::optional(it->first) : std::nullopt;
}

Expr start_of_rows(LaneScope& scope, int slot, Expr offset, int var, int64_t count, bool loads) {
  auto& facts = scope.facts();
  if (slot < 0 || parts_of(facts, slot) != 1 || (loads && facts.is_written(slot))) return {};
  return scope.start_of_row(var, count, offset);
}

bool stores_pairs(LaneScope& scope, const Statement& re, const Statement& im) {
  return re.kind == SK::store && im.kind == SK::store && re.buffer >= 0 && re.buffer == im.buffer &&
         re.part == 1 && im.part == 2 && same(re.offset, im.offset) && is_beside(scope, re.offset);
}

int loads_pairs(LaneScope& scope, Expr re, Expr im, DType d) {
  bool pair = re->kind == Kind::load && im->kind == Kind::load && re->slot >= 0 && re->slot == im->slot &&
              re->part == 1 && im->part == 2 && same(re->args[0], im->args[0]) && real_of(re->memory) == d;
  auto stride = pair ? scope.motion(re->args[0]).constant() : std::nullopt;
  return stride == 1 ? 1 : stride == -1 ? -1 : 0;
}

int stores_of_neighbours(LaneScope& scope, const Block& block, size_t k) {
  auto& facts = scope.facts();
  auto& first = block[k];
  if (first.kind != SK::store || first.buffer < 0 || first.part || parts_of(facts, first.buffer) != 1)
    return 0;
  int64_t apart = scope.motion(first.offset).constant().value_or(0);
  if (apart < 2 || apart > kMostNeighbours || int64_t(block.size() - k) < apart) return 0;
  Expr start = facts.spelled_out(first.offset);
  for (int64_t j = 1; j < apart; ++j) {
    auto& s = block[k + size_t(j)];
    Linear from;
    if (s.kind != SK::store || s.buffer != first.buffer || s.part ||
        !linear(facts.spelled_out(s.offset), from) || !linear(start, from, -1) || from.constant != j ||
        std::any_of(from.terms.begin(), from.terms.end(), [](auto& t) { return t.coefficient != 0; }))
      return 0;
  }
  return int(apart);
}

namespace {

// The reason why a load, or a store of one statement, cannot be `a`; null if it can.
const char* impossible(const LanePlace& at, const Access& a, int slot, Expr offset, bool load) {
  auto& scope = *at.scope;
  int64_t parts = parts_of(scope.facts(), slot), apart = scope.motion(offset).constant().value_or(0) * parts;
  bool own = slot < 0 && scope.is_lane_array(-1 - slot);
  if (a.rows >= 0) {
    bool around = at.steps && at.steps->var == a.rows && !at.guarded && !at.masked;
    Expr start;
    if (around) start = start_of_rows(scope, slot, offset, a.rows, at.steps->extent->value.to_int(), load);
    if (start.get() == nullptr) return "rows that an unrolled loop does not run over";
  }
  switch (a.kind) {
    case AK::gathered:
    case AK::each: return scope.varies(offset) ? nullptr : "an access for each lane to one element";
    case AK::reversed: return load && !own && apart == -1 ? nullptr : "elements that are not reversed";
    case AK::spaced:
      return load && !own && apart == a.count && a.count > 1 ? nullptr : "elements that are not so far apart";
    case AK::repeated: {
      auto r = load && !own && parts == 1 ? scope.repeated(offset) : std::nullopt;
      return r && r->times == a.count && r->from == a.from ? nullptr : "elements that lanes do not share so";
    }
    case AK::packed:
      return !load && !own && parts == 1 && !at.masked && count_before(scope, offset) ? nullptr
                                                                                      : "a store at no count";
    case AK::contiguous:
    case AK::uniform:
    case AK::own:
      return a.rows >= 0 && direct_access(scope, slot, offset) == a.kind ? nullptr : "what is direct";
    default: return "a load or a single store as a part of several stores";
  }
}

}  // namespace

const char* impossible_access(const LanePlace& at, const Block& block, size_t k) {
  auto& s = block[k];
  auto& scope = *at.scope;
  const char* why = nullptr;
  size_t used = 0;
  auto check = [&](int slot, Expr offset, bool load) {
    auto* a = stated(s, slot, offset, load);
    if (!a && !direct_access(scope, slot, offset)) why = "nothing, and it is not direct";
    if (a && !why) why = impossible(at, *a, slot, offset, load);
  };
  each_load(s, [&](Expr e) {
    Expr offset = e->args[0];
    if (moves_pair(block, k) && same(e, s.values[0])) return;
    check(e->slot, offset, true);
  });
  for (auto& a : s.accesses) {
    bool is_store = a.offset.get() == nullptr, contained = is_store;
    if (!is_store)
      each_load(s, [&](Expr e) { contained |= e->slot == a.slot && same(e->args[0], a.offset); });
    if (!contained) why = "a load that it does not contain";
    used += is_store;
  }
  if (used > (s.kind == SK::store)) return "a store that it does not contain";
  if (s.kind != SK::store || is_stored_before(block, k)) return used ? "a store twice" : why;
  auto* a = stated(s, 0, {}, false);
  if (!a || !together(a->kind)) return check(s.buffer, s.offset, false), why;
  bool pairs = a->kind == AK::pairs, fits = k + size_t(a->count) <= block.size();
  if (pairs)
    fits = fits && a->count == 2 && stores_pairs(scope, s, block[k + 1]) &&
           (!a->moved || a->moved == loads_pairs(scope, s.values[0], block[k + 1].values[0],
                                                 real_of(scope.facts().memory(s.buffer))));
  else fits = fits && a->count == stores_of_neighbours(scope, block, k);
  return fits ? why : "several stores that are not side by side";
}

}  // namespace facula::loop
