#include "facula/schedule/sweeps.h"

#include <algorithm>

#include "facula/loop/seen.h"
#include "facula/schedule/analysis.h"
#include "facula/schedule/statements.h"

namespace facula::schedule {

using loop::Block;
using loop::Expr;
using loop::Kind;
using loop::LoopKind;
using loop::Statement;

namespace {

constexpr int64_t kWindow = 16;

bool is_fold(Expr e) { return e->kind == Kind::reduce || e->kind == Kind::scan; }
// True for a window of a few elements, whose places and conditions are computed per row instead of per lane.
bool is_small(const std::vector<Loop>& loops) {
  int64_t count = 1;
  for (auto& l : loops) count *= l.extent->kind == Kind::constant ? l.extent->value.to_int() : kWindow + 1;
  return count <= kWindow;
}

DType component_type(Expr fold, int k) {
  return loop::components(fold->monoid) == 1 ? fold.dtype() : loop::part(fold, k).dtype();
}

Expr as_index(Expr e) {
  return e.dtype() == DType::Int64 ? e
         : e->kind == Kind::cast   ? as_index(e->args[0])
                                   : loop::cast(e, DType::Int64);
}

// Recognises extrema whose positions are visited in increasing order. Positions may have a smaller dtype that can
// hold them all.
bool rises(Expr r) {
  if (!loop::has_position(r->monoid)) return false;
  Expr order = integer(0);
  for (auto& b : r->bound) order = order * b.extent + loop::index(b.var);
  auto moving = free_vars(as_index(r->args[1]) - order);
  return std::none_of(r->bound.begin(), r->bound.end(),
                      [&](auto& b) { return std::count(moving.begin(), moving.end(), b.var); });
}

Expr place_in(const std::vector<Loop>& loops) {
  Expr place = integer(0);
  for (auto& l : loops) place = place * l.extent + loop::index(l.var);
  return place;
}

bool same_domain(Expr a, Expr b) {
  if (a->bound.size() != b->bound.size()) return false;
  for (size_t k = 0; k < a->bound.size(); ++k)
    if (a->bound[k].var != b->bound[k].var || !same(a->bound[k].extent, b->bound[k].extent)) return false;
  return true;
}

}  // namespace

void visit_once(Expr e, std::unordered_set<const loop::Node*>& seen, const std::function<void(Expr)>& f) {
  if (!seen.insert(e.get()).second) return;
  for (auto& a : e->args) visit_once(a, seen, f);
  f(e);
}

void SweepWriter::run(Block& block, const std::vector<Loop>& loops, size_t k,
                      std::vector<Statement> payload) {
  size_t mark = lets_.size();
  std::vector<Expr*> roots;
  for (auto& s : payload) {
    for (auto& v : s.values) roots.push_back(&v);
    if (s.offset) roots.push_back(&s.offset);
  }
  resolve(block, roots);
  if (k == loops.size()) {
    store_values(block, payload);
    for (auto& s : payload) block.push_back(std::move(s));
    lets_.resize(mark);
    return;
  }
  hoist(block, roots);
  auto scans = begin_scans(block, roots, loops[k].var);
  Statement loop = statement(Statement::Kind::loop);
  loop.var = loops[k].var;
  loop.extent = loops[k].extent;
  bool lanes =
      !in_lanes_ && std::find(spec_.vectors.begin(), spec_.vectors.end(), loop.var) != spec_.vectors.end();
  if (lanes) loop.loop = LoopKind::vector;
  else if (is_small(loops)) loop.loop = LoopKind::unrolled;
  in_lanes_ |= lanes;
  bool fresh = scope_.insert(loop.var).second;
  step_scans(loop.body, scans, roots);
  run(loop.body, loops, k + 1, std::move(payload));
  if (fresh) scope_.erase(loop.var);
  if (lanes) in_lanes_ = false;
  block.push_back(std::move(loop));
  lets_.resize(mark);
}

// Several stores to one element read what they overwrite before any of them is performed.
void SweepWriter::store_values(Block& block, std::vector<Statement>& payload) {
  if (payload.size() < 2) return;
  for (auto& s : payload)
    if (s.kind == Statement::Kind::store && reads_written(s.values[0])) {
      Statement l = statement(Statement::Kind::let);
      l.var = next_local_++;
      l.values = {s.values[0]};
      s.values[0] = loop::local(l.var, l.values[0].dtype());
      block.push_back(std::move(l));
    }
}

std::vector<SweepWriter::Scan> SweepWriter::begin_scans(Block& block, const std::vector<Expr*>& roots,
                                                        int var) {
  std::vector<Scan> scans;
  std::unordered_set<const loop::Node*> seen;
  for (auto* r : roots)
    if ((*r)->has_reduce)
      visit_once(*r, seen, [&](Expr e) {
        if (e->kind == Kind::scan && e->slot == var) scans.push_back({e, accumulator(block, e)});
      });
  for (auto& s : scans)
    for (int k = 0; k < loop::components(s.node->monoid); ++k) volatile_.insert(s.var + k);
  return scans;
}
void SweepWriter::step_scans(Block& block, const std::vector<Scan>& scans, const std::vector<Expr*>& roots) {
  std::unordered_map<const loop::Node*, int> first_locals;
  for (auto& s : scans) {
    std::vector<Expr> values = s.node->args;
    for (auto& v : values) v = with_locals(v, first_locals);
    Statement a = statement(Statement::Kind::accumulate);
    a.var = s.var;
    a.monoid = s.node->monoid;
    a.values = values;
    block.push_back(std::move(a));
    first_locals[s.node.get()] = s.var;
  }
  for (auto* r : roots) *r = with_locals(*r, first_locals);
}

int SweepWriter::accumulator(Block& block, Expr fold) {
  Statement s = statement(Statement::Kind::accumulator);
  s.var = next_local_;
  s.monoid = fold->monoid;
  s.dtype = fold->args[0].dtype();
  if (fold->args.size() == 2) s.position = fold->args[1].dtype();
  next_local_ += loop::components(fold->monoid);
  int var = s.var;
  block.push_back(std::move(s));
  return var;
}

Expr SweepWriter::with_locals(Expr e, const std::unordered_map<const loop::Node*, int>& first_locals) {
  if (first_locals.empty() || !e->has_reduce) return e;
  return loop::rewrite(e, [&](Expr x) -> Expr {
    if (!x->has_reduce) return x;
    if (x->kind == Kind::part) {
      auto it = first_locals.find(x->args[0].get());
      if (it != first_locals.end() && x->slot == 1)
        if (auto at = positions_.find(x->args[0].get()); at != positions_.end()) return at->second;
      if (it != first_locals.end()) return loop::local(it->second + x->slot, x.dtype());
    }
    auto it = first_locals.find(x.get());
    return it == first_locals.end() ? Expr() : loop::local(it->second, component_type(x, 0));
  });
}

bool SweepWriter::is_ready(Expr e) {
  for (int v : free_vars(e))
    if (!scope_.count(v)) return false;
  return true;
}

// Computes the reductions in `roots` that depend only on variables and locals in scope, level by level; equal
// domains share a sweep.
void SweepWriter::resolve(Block& block, const std::vector<Expr*>& roots) {
  while (true) {
    std::vector<Expr> ready;
    std::unordered_set<const loop::Node*> seen, blocked;
    auto blocked_inside = [&](Expr e) {
      for (auto& a : e->args)
        if (blocked.count(a.get())) return true;
      return false;
    };
    for (auto* r : roots) {
      if (!(*r)->has_reduce) continue;
      visit_once(*r, seen, [&](Expr e) {
        if (!e->has_reduce) return;
        if (blocked_inside(e)) {
          blocked.insert(e.get());
          return;
        }
        if (e->kind == Kind::scan) blocked.insert(e.get());
        if (e->kind != Kind::reduce || !is_ready(e)) return;
        ready.push_back(e);
        blocked.insert(e.get());
      });
    }
    if (ready.empty()) return;
    std::unordered_map<const loop::Node*, int> first_locals;
    std::vector<Spilled> spilled;
    // Reductions inside this sweep do not run along the sweeps of the stores.
    auto* stores = std::exchange(stores_, nullptr);
    std::vector<bool> done(ready.size());
    for (size_t k = 0; k < ready.size(); ++k) {
      if (done[k]) continue;
      std::vector<Statement> payload;
      std::vector<Expr> rising;
      for (size_t j = k; j < ready.size(); ++j) {
        if (done[j] || !same_domain(ready[k], ready[j])) continue;
        done[j] = true;
        first_locals[ready[j].get()] = accumulator(block, ready[j]);
        Statement a = statement(Statement::Kind::accumulate);
        a.var = first_locals[ready[j].get()];
        a.monoid = ready[j]->monoid;
        a.values = ready[j]->args;
        a.rising = rises(ready[j]);
        if (a.rising) rising.push_back(ready[j]);
        payload.push_back(std::move(a));
      }
      std::vector<Loop> loops;
      for (auto& b : ready[k]->bound) loops.push_back({b.var, b.extent});
      if (stores && !spec_.row_vector) spill(block, *stores, loops, payload, spilled);
      run(block, loops, 0, std::move(payload));
      for (auto& r : rising) positions_[r.get()] = position_of(block, r, first_locals.at(r.get()) + 1);
    }
    stores_ = stores;
    for (auto* r : roots) *r = with_locals(*r, first_locals);
    for (auto& k : spilled)
      k.store->value =
          loop::rewrite(k.store->value, [&](Expr x) { return same(x, k.value) ? k.load : Expr(); });
  }
}
// The position of an extremum. If every value equals the identity none was recorded, and it is the first position.
Expr SweepWriter::position_of(Block& block, Expr r, int var) {
  std::vector<std::pair<int, Expr>> begin;
  for (auto& b : r->bound) begin.push_back({b.var, integer(0)});
  DType d = r->args[1].dtype();
  Expr position = loop::local(var, d), nowhere = loop::identity(r->monoid, r.dtype(), d)[1];
  return let(block, loop::select(loop::eq(position, nowhere), loop::substitute(r->args[1], begin), position),
             false);
}
// Retains an expensive value that a reduction needs and a store needs again (the exp of softmax): in the
// destination of the store, or in an array if the destination has 16 bits. Not if rows run in lanes: consecutive
// elements of a row are then far apart, and recomputing is faster.
void SweepWriter::spill(Block& block, std::vector<FlatStore>& stores, const std::vector<Loop>& loops,
                        std::vector<Statement>& payload, std::vector<Spilled>& spilled) {
  std::unordered_set<const loop::Node*> used;
  for (auto& p : payload)
    for (auto& v : p.values) visit_once(v, used, [](Expr) {});
  for (auto& s : stores) {
    auto& buffer = buffers_[size_t(s.buffer)];
    bool in_array = spec_.row_array_elements && is_floating(buffer.dtype) && itemsize(buffer.dtype) == 2;
    bool fits = !loops.empty() && s.sweep.size() == loops.size() && (in_array || buffer.unique) && !s.part &&
                !spilled_buffers_.count(s.buffer);
    for (size_t k = 0; fits && k < loops.size(); ++k) fits = s.sweep[k].var == loops[k].var;
    if (!fits) continue;
    Expr best;
    double most = 9;
    Survey survey(scope_, volatile_, buffers_);
    loop::Seen seen;
    auto search = [&](auto&& self, Expr e) -> void {
      if (is_fold(e) || e->kind == Kind::part || !seen.insert(e.get())) return;
      DType place = in_array ? DType::Float32 : buffer.dtype;
      if (used.count(e.get()) && e->kind == Kind::call && !e->has_reduce && e.dtype() == place) {
        // Subexpressions that depend on the row alone are computed once anyway.
        Expr own = loop::rewrite(e, [&](Expr x) {
          bool once = x->kind == Kind::call && !survey.of(x).varies;
          return once ? loop::constant(Scalar(int64_t(0)), x.dtype()) : Expr();
        });
        double cost = operation_count(std::span(&own, 1));
        if (survey.of(e).varies && cost > most) best = e, most = cost;
      }
      for (auto& a : e->args) self(self, a);
    };
    search(search, s.value);
    if (!best.get()) continue;
    Statement now = statement(Statement::Kind::store);
    now.buffer = in_array ? row_array(block) : s.buffer;
    now.values = {best};
    now.offset = in_array ? place_in(loops) : s.offset;
    spilled.push_back({&s, best, loop::load(now.buffer, best.dtype(), {now.offset})});
    payload.push_back(std::move(now));
    spilled_buffers_.insert(s.buffer);
    return;
  }
}

// Declares an array for float32 values of a row; gives its buffer number.
int SweepWriter::row_array(Block& block) {
  Statement array = statement(Statement::Kind::array);
  array.var = next_local_++;
  array.dtype = DType::Float32;
  array.extent = integer(spec_.row_array_elements);
  block.push_back(std::move(array));
  return -1 - block.back().var;
}
void SweepWriter::merge(Block& block, const Merge& m) {
  auto start = loop::identity(m.monoid, m.dtype);
  std::vector<Expr> now;
  auto assign = [&](Block& b, int var, Expr v) {
    Statement s = statement(Statement::Kind::assign);
    s.var = var;
    s.values = {v};
    b.push_back(std::move(s));
  };
  for (size_t k = 0; k < start.size(); ++k) {
    assign(block, m.var + int(k), start[k]);
    now.push_back(loop::local(m.var + int(k), start[k].dtype()));
  }
  Statement loop = statement(Statement::Kind::loop);
  loop.var = m.loop.var;
  loop.extent = m.loop.extent;
  auto next = loop::combine(m.monoid, now, m.parts);
  std::vector<Expr> lets;
  for (auto& e : next) lets.push_back(let(loop.body, e, false));
  for (size_t k = 0; k < lets.size(); ++k) assign(loop.body, m.var + int(k), lets[k]);
  block.push_back(std::move(loop));
}

}  // namespace facula::schedule
