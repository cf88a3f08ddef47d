#include "facula/schedule/lane_access.h"

#include <algorithm>
#include <span>

#include "facula/loop/simplify.h"

namespace facula::schedule {

using loop::Expr;
using loop::Fn;
using loop::Kind;
using loop::LaneScope;
using loop::Statement;
using SK = Statement::Kind;

namespace {
constexpr int64_t kFarthest = 8;  // a larger distance between elements does not pay for whole vectors
bool is_beside(LaneScope& scope, Expr offset) { return scope.motion(offset).constant() == 1; }
// True if the elements have a size that machines gather, and index tensors select them.
bool is_picked(LaneScope& scope, int slot, Expr offset) {
  bool indexed = false;
  loop::visit(scope.facts().spelled_out(offset),
              [&](Expr x) { indexed |= x->kind == Kind::check && x->slot; });  // `within`
  return indexed && itemsize(real_of(scope.facts().memory(slot))) >= 4;
}
}  // namespace

int64_t parts_of(const loop::NestFacts& facts, int slot) { return is_complex(facts.memory(slot)) ? 2 : 1; }

bool counts(loop::NestFacts& facts, const Statement& adds) {
  Expr one = adds.values[0];
  if (one->kind == Kind::local) one = facts.lasting_definition(one->slot);
  return adds.monoid == loop::Monoid::sum && one && one->kind == Kind::cast &&
         one->args[0].dtype() == DType::Bool;
}
std::optional<int> count_before(LaneScope& scope, Expr offset) {
  if (!loop::is_call(offset, Fn::sub) || offset->args[0]->kind != Kind::local) return {};
  auto it = scope.accumulators().find(offset->args[0]->slot);
  bool before = it != scope.accumulators().end() && same(it->second->values[0], offset->args[1]);
  return before && counts(scope.facts(), *it->second) ? std::optional(it->first) : std::nullopt;
}

LaneAccess lane_access(LaneScope& scope, int slot, Expr offset, AccessPlace place) {
  auto scattered = place.masked ? LaneAccess::gathered : LaneAccess::each;
  if (slot < 0 && scope.is_lane_array(-1 - slot)) return {scope.varies(offset) ? scattered : LaneAccess::own};
  int64_t parts = parts_of(scope.facts(), slot);
  loop::Motion m = scope.motion(offset);
  if (!m.simple) {
    if (place.packs && !place.loads && parts == 1 && count_before(scope, offset)) return {LaneAccess::packed};
    if (auto r = place.loads && parts == 1 ? scope.repeated(offset) : std::nullopt)
      return {.kind = LaneAccess::repeated, .lanes = *r};
    return {place.loads && place.gathers && is_picked(scope, slot, offset) ? LaneAccess::gathered
                                                                           : scattered};
  }
  auto stride = m.constant();
  int64_t apart = stride ? *stride * parts : 0;
  if (stride == 0) return {LaneAccess::uniform};
  if (apart == 1) return {LaneAccess::contiguous};
  if (place.loads && apart == -1) return {LaneAccess::reversed};
  if (place.loads && !place.masked && apart >= 2 && apart <= kFarthest)
    return {.kind = LaneAccess::spaced, .apart = apart};
  return {scattered, parts == 1 ? m.stride : m.stride * loop::constant(parts, DType::Int64)};
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

size_t stores_of_neighbours(LaneScope& scope, const loop::Block& block, size_t k) {
  auto& facts = scope.facts();
  auto& first = block[k];
  if (first.kind != SK::store || first.buffer < 0 || first.part || parts_of(facts, first.buffer) != 1)
    return 0;
  int64_t apart = scope.motion(first.offset).constant().value_or(0);
  if (apart < 2 || apart > kFarthest || int64_t(block.size() - k) < apart) return 0;
  Expr start = facts.spelled_out(first.offset);
  for (int64_t j = 1; j < apart; ++j) {
    auto& s = block[k + size_t(j)];
    loop::Linear from;
    if (s.kind != SK::store || s.buffer != first.buffer || s.part ||
        !loop::linear(facts.spelled_out(s.offset), from) || !loop::linear(start, from, -1) ||
        from.constant != j ||
        std::any_of(from.terms.begin(), from.terms.end(), [](auto& t) { return t.coefficient != 0; }))
      return 0;
  }
  return size_t(apart);
}

bool is_bfloat16(Expr e) {
  auto all = [](std::span<const Expr> x) { return std::all_of(x.begin(), x.end(), is_bfloat16); };
  switch (e->kind) {
    case Kind::load: return e->memory == DType::BFloat16;
    case Kind::cast:
      return e.dtype() == DType::Float32 &&
             (e->memory == DType::BFloat16 || e->args[0].dtype() == DType::Bool);
    case Kind::constant: return e.dtype() == DType::Float32 && float(e->value.to_double()) == 0;
    case Kind::select: return all(std::span(e->args).subspan(1));
    case Kind::call: break;
    default: return false;
  }
  switch (e->fn) {
    case Fn::neg:
    case Fn::abs:
    case Fn::sign:
    case Fn::relu:
    case Fn::max:
    case Fn::min:
    case Fn::fmax:
    case Fn::fmin:
    case Fn::copysign: return e.dtype() == DType::Float32 && all(e->args);
    default: return false;
  }
}

}  // namespace facula::schedule
