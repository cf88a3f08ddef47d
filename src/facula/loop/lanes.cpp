#include "facula/loop/lanes.h"

#include <algorithm>

#include "facula/loop/monoid.h"
#include "facula/loop/simplify.h"

namespace facula::loop {
namespace {
using SK = Statement::Kind;
}

// ---- facts of a nest

NestFacts::NestFacts(const Nest& n) : nest_(n) {
  scan(n.body);
  for (size_t k = 0; k < n.buffers.size(); ++k)  // may overlap a buffer that is written
    if (!n.buffers[k].unique) written_.insert(int(k));
}

void NestFacts::declare(int local, const Statement& s) {
  internal_check(declarations_.try_emplace(local, &s).second)
      << "nest " << nest_.name << ": v" << local << " is declared by several statements";
}

void NestFacts::scan(const Block& block) {
  each_statement(block, [&](const Statement& s) {
    switch (s.kind) {
      case SK::accumulator:
        for (int k = 0; k < components(s.monoid); ++k) {
          declare(s.var + k, s);
          mutable_.insert(s.var + k);
        }
        break;
      case SK::let:
        declare(s.var, s);
        values_[s.var].push_back(s.values[0]);
        break;
      case SK::assign:
        declarations_.try_emplace(s.var, &s);
        mutable_.insert(s.var);
        values_[s.var].push_back(s.values[0]);
        break;
      case SK::array: declare(s.var, s); break;
      case SK::tiles:
      case SK::store:
      case SK::atomic: written_.insert(s.buffer); break;
      default: break;
    }
  });
}

const Statement* NestFacts::declaration(int local) const {
  auto it = declarations_.find(local);
  return it == declarations_.end() ? nullptr : it->second;
}

Expr NestFacts::definition(int local) const {
  auto* s = declaration(local);
  return s && s->kind == SK::let ? s->values[0] : Expr();
}

DType NestFacts::memory(int slot) const {
  return slot < 0 ? declarations_.at(-1 - slot)->dtype : nest_.buffers.at(size_t(slot)).dtype;
}

bool NestFacts::is_volatile(Expr e) {
  if (e->kind == Kind::constant || e->kind == Kind::param || e->kind == Kind::index) return false;
  if (e->kind == Kind::local) return mutable_.count(e->slot);
  if (auto* entry = volatile_.find(e.get())) return *entry;
  bool r = e->kind == Kind::load && is_written(e->slot);
  for (auto& a : e->args) r = r || is_volatile(a);
  return volatile_[e.get()] = r;
}

bool NestFacts::depends_on_data(Expr e) {
  bool data = false;
  visit(e, [&](Expr x) {
    data |= x->kind == Kind::load || x->kind == Kind::random || (x->kind == Kind::local && is_data(x->slot));
  });
  return data;
}

bool NestFacts::is_data(int local) {
  auto it = values_.find(local);
  if (it == values_.end()) return true;
  if (!asked_.insert(local).second) return false;  // its own earlier value
  bool data = std::any_of(it->second.begin(), it->second.end(), [&](Expr e) { return depends_on_data(e); });
  asked_.erase(local);
  return data;
}

Expr NestFacts::lasting_definition(int local) {
  Expr e = definition(local);
  return e && !is_volatile(e) ? e : Expr();
}

Expr NestFacts::spelled_out(Expr e) {
  return rewrite(e, [&](Expr x) -> Expr {
    if (x->kind != Kind::local) return {};
    Expr definition = lasting_definition(x->slot);
    return definition ? spelled_out(definition) : x;
  });
}

bool is_move(Expr e, DType d) {
  if (e->kind == Kind::select) return is_move(e->args[1], d) || is_move(e->args[2], d);
  return e->kind == Kind::load && e->memory == d && !e->part;
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

// ---- in the lanes of a loop

std::optional<int64_t> Motion::constant() const {
  if (!simple) return {};
  if (!stride.get()) return 0;
  if (stride->kind != Kind::constant) return {};
  return stride->value.to_int();
}

LaneScope::LaneScope(NestFacts& facts, const Statement& loop)
    : lanes(loop.lanes.width), facts_(facts), loop_(&loop), var_(loop.var) {
  survey(loop.body);
}

void LaneScope::survey(const Block& block) {
  each_statement(block, [&](const Statement& t) {
    switch (t.kind) {
      case SK::array:
        inside_.insert(t.var);
        arrays_.insert(t.var);
        break;
      case SK::let:
        inside_.insert(t.var);
        if (varies(t.values[0])) varying_.insert(t.var);
        break;
      case SK::accumulator:
        for (int k = 0; k < components(t.monoid); ++k) {
          inside_.insert(t.var + k);
          varying_.insert(t.var + k);
        }
        break;
      case SK::assign:
        if (facts_.declaration(t.var) == &t) inside_.insert(t.var);
        varying_.insert(t.var);
        break;
      case SK::accumulate:
        if (inside_.count(t.var)) break;
        accumulators_[t.var] = &t;
        for (int k = 0; k < components(t.monoid); ++k) varying_.insert(t.var + k);
        break;
      default: break;
    }
  });
}

bool LaneScope::varies(Expr e) {
  switch (e->kind) {
    case Kind::constant:
    case Kind::param: return false;
    case Kind::index: return is_lane_index(e);
    case Kind::local: return loop_ ? varying_.count(e->slot) : lanes > 1;
    default: break;
  }
  if (auto* entry = varies_.find(e.get())) return *entry;
  bool r = e->kind == Kind::load && e->slot < 0 && is_lane_array(-1 - e->slot);
  for (auto& a : e->args) r = r || varies(a);
  return varies_[e.get()] = r;
}

Motion LaneScope::motion(Expr e) {
  if (!varies(e)) return {true, Expr()};
  auto both = [&](auto f) -> Motion {
    Motion x = motion(e->args[0]), y = motion(e->args[1]);
    return x.simple && y.simple ? Motion{true, f(x.stride, y.stride)} : Motion{};
  };
  auto scaled = [](Motion m, auto f) { return m.simple ? Motion{true, f(m.stride)} : m; };
  if (e->kind == Kind::index) return {true, constant(int64_t(1), DType::Int64)};
  if (e->kind == Kind::local) {
    Expr definition = facts_.lasting_definition(e->slot);
    return definition ? motion(definition) : Motion{};
  }
  if (e->kind != Kind::call || e->dtype != DType::Int64) return {};
  switch (e->fn) {
    case Fn::add: return both([](Expr x, Expr y) { return x && y ? x + y : x ? x : y; });
    case Fn::sub: return both([](Expr x, Expr y) { return x && y ? x - y : x ? x : -y; });
    case Fn::neg: return scaled(motion(e->args[0]), [](Expr x) { return -x; });
    case Fn::mul: {
      size_t k = varies(e->args[0]) ? 0 : 1;
      if (varies(e->args[1 - k])) return {};
      return scaled(motion(e->args[k]), [&](Expr x) { return x * e->args[1 - k]; });
    }
    case Fn::fma: return motion(e->args[0] * e->args[1] + e->args[2]);
    default: return {};
  }
}

bool LaneScope::only_sums(const Block& body) {
  return std::all_of(body.begin(), body.end(), [&](const Statement& t) {
    if (t.kind == SK::let) return true;
    return t.kind == SK::accumulate && t.monoid == Monoid::sum && !t.rising &&
           is_floating(t.values[0].dtype()) && inside_.count(t.var);
  });
}

bool LaneScope::is_convex(Expr c) {
  auto even = [&](Expr e) { return motion(e).simple; };
  if (c->kind != Kind::call) return even(c);
  switch (c->fn) {
    case Fn::bit_and: return is_convex(c->args[0]) && is_convex(c->args[1]);
    case Fn::ge:
    case Fn::gt:
    case Fn::le:
    case Fn::lt:
    case Fn::eq: return c->args[0].dtype() == DType::Int64 && even(c->args[0]) && even(c->args[1]);
    default: return even(c);
  }
}

Expr LaneScope::in_last_lane(Expr e) {
  return rewrite(e, [&](Expr x) -> Expr {
    if (!varies(x)) return x;
    if (x->kind == Kind::index) return x + constant(int64_t(lanes - 1), DType::Int64);
    return x->kind == Kind::local ? in_last_lane(facts_.definition(x->slot)) : Expr();
  });
}

std::optional<int64_t> LaneScope::phase(Expr x, Expr n) {
  if (!loop_ || x.dtype() != DType::Int64 || n->kind != Kind::constant) return {};
  int64_t by = n->value.to_int();
  Linear sum;
  if (by < 2 || lanes % by || !linear(facts_.spelled_out(x), sum) || sum.terms.size() != 1) return {};
  auto& t = sum.terms[0];
  if (t.coefficient != 1 || !is_lane_index(t.x)) return {};
  return (sum.constant % by + by) % by;
}

std::optional<Repeated> LaneScope::repeated(Expr offset) {
  Linear sum;
  if (!loop_ || !linear(facts_.spelled_out(offset), sum)) return {};
  std::optional<Repeated> result;
  for (auto& t : sum.terms) {
    if (!varies(t.x)) continue;
    bool quotient = t.coefficient == 1 && is_call(t.x, Fn::floordiv);
    auto from = quotient && !result ? phase(t.x->args[0], t.x->args[1]) : std::nullopt;
    if (!from) return {};
    result = Repeated{t.x->args[1]->value.to_int(), *from};
  }
  return result;
}

Expr LaneScope::start_of_row(int var, int64_t count, Expr offset) {
  Linear sum;
  if (!linear(offset, sum)) return {};
  auto is_own = [&](Expr x) { return x->kind == Kind::index && x->slot == var; };
  auto own = std::find_if(sum.terms.begin(), sum.terms.end(), [&](auto& t) { return is_own(t.x); });
  if (own == sum.terms.end() || own->coefficient != 1) return {};
  sum.terms.erase(own);
  for (auto& t : sum.terms) {
    bool again = false;
    visit(t.x, [&](Expr x) { again |= is_own(x); });
    if (again) return {};
  }
  Expr start = from_linear(sum, offset.dtype());
  return motion(start).constant() == count ? start : Expr();
}

// ---- hazards: reasons against lanes

const char* LaneScope::hazard() {
  internal_check(loop_) << "hazards of no loop";
  if (auto* why = hazard_of_locals(loop_->body)) return why;
  Places places;
  Seen seen;
  if (auto* why = hazard_of_places(loop_->body, places, seen)) return why;
  for (auto& [key, offsets] : places.stores) {
    auto it = places.loads.find(key);
    bool wild = places.wild.count(key.first);
    bool same_place = it == places.loads.end() || (it->second == offsets && offsets.size() == 1 && !wild);
    if (!same_place) return "an iteration may read what another one stores";
    if (wild && offsets.size() > 1) return "iterations may store to one element";
  }
  return nullptr;
}

bool LaneScope::reads(const Statement& s, const std::set<int>& locals) const {
  bool any = false;
  each_expression(s, [&](Expr root) {
    visit(root, [&](Expr e) { any |= e->kind == Kind::local && locals.count(e->slot); });
  });
  return any || std::any_of(s.body.begin(), s.body.end(), [&](auto& t) { return reads(t, locals); });
}
bool LaneScope::adds(const Statement& s) const {
  return (s.kind == SK::accumulate && accumulators_.count(s.var)) ||
         std::any_of(s.body.begin(), s.body.end(), [&](auto& t) { return adds(t); });
}

std::set<int> LaneScope::totals() const {
  std::set<int> all;
  for (auto& [var, t] : accumulators_)
    for (int k = 0; k < components(t->monoid); ++k) all.insert(var + k);
  return all;
}

bool LaneScope::scans() const {
  auto locals = totals();
  return std::any_of(loop_->body.begin(), loop_->body.end(),
                     [&](const Statement& s) { return reads(s, locals); });
}

const char* LaneScope::hazard_of_locals(const Block& block) {
  const char* why = nullptr;
  each_statement(block, [&](const Statement& t) {
    if (t.kind == SK::assign && !inside_.count(t.var)) why = "an iteration assigns a local of outside";
  });
  if (why || accumulators_.empty()) return why;
  if (loop_->lanes.scan) return hazard_of_scans();
  return scans() ? "an iteration reads an accumulator that it adds to" : nullptr;
}

const char* LaneScope::hazard_of_scans() const {
  auto pending = totals();  // accumulators that must not be read yet
  for (auto& s : loop_->body) {
    bool adds_here = adds(s);
    if (reads(s, pending)) return "an iteration reads an accumulator before it adds to it";
    if (!adds_here && !pending.empty() && s.kind != SK::let)
      return "an iteration does something before it adds to what it reads";
    if (!adds_here) continue;
    if (s.kind != SK::accumulate || !pending.count(s.var))
      return "an iteration adds twice to an accumulator that it reads";
    if (!may_regroup(s.monoid, s.values)) return "the elements of a scan must be combined one by one";
    for (int k = 0; k < components(s.monoid); ++k) pending.erase(s.var + k);
  }
  return nullptr;
}

const char* LaneScope::hazard_of_places(const Block& block, Places& places, Seen& seen) {
  const char* why = nullptr;
  each_statement(block, [&](const Statement& t) {
    each_expression(t, [&](Expr root) {
      each_node(root, seen, [&](Expr e) {
        if (e->kind == Kind::load && !is_lane_array(-1 - e->slot))
          places.loads[{e->slot, e->part}].insert(e->args[0].get());
      });
    });
    if (t.kind != SK::store || is_lane_array(-1 - t.buffer)) return;
    places.stores[{t.buffer, t.part}].insert(t.offset.get());
    if (!motion(t.offset).simple) places.wild.insert(t.buffer);
    if (!varies(t.offset) && varies(t.values[0])) why = "iterations store different values to one element";
  });
  return why;
}

namespace {

// True if the offset is a sum of products of the loop's index `var`, other indices, parameters and constants, which
// locals of the loop (`own`) do not enter.
bool is_linear(Expr offset, int var, const std::set<int>& own) {
  bool along = false, other = false;
  visit(offset, [&](Expr e) {
    along |= e->kind == Kind::index && e->slot == var;
    bool linear = e->fn == Fn::add || e->fn == Fn::sub || e->fn == Fn::mul;
    bool computed = e->kind == Kind::constant || e->kind == Kind::param || (e->kind == Kind::call && linear);
    other |= e->kind == Kind::local ? own.count(e->slot) > 0 : e->kind != Kind::index && !computed;
  });
  return along && !other;
}

}  // namespace

std::vector<PrefetchedPlace> prefetched_places(const Statement& loop) {
  std::set<int> own;
  each_statement(loop.body, [&](const Statement& t) { own.insert(t.var); });
  std::vector<PrefetchedPlace> all;
  Seen seen;
  for (auto& t : loop.body)
    each_expression(t, [&](Expr root) {
      each_node(root, seen, [&](Expr e) {
        if (e->kind == Kind::load && e->slot >= 0 && is_linear(e->args[0], loop.var, own))
          all.push_back({e->slot, e->part, e->args[0]});
      });
    });
  for (auto& t : loop.body)
    if (t.kind == Statement::Kind::store && t.buffer >= 0 && is_linear(t.offset, loop.var, own))
      all.push_back({t.buffer, t.part, t.offset});
  return all;
}

}  // namespace facula::loop
