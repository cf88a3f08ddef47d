#include "facula/schedule/grid.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "facula/loop/monoid.h"
#include "facula/schedule/barriers.h"
#include "facula/schedule/exchange.h"
#include "facula/schedule/parallel.h"
#include "facula/schedule/statements.h"

namespace facula::schedule {

using loop::Block;
using loop::Expr;
using loop::Fn;
using loop::Kind;
using loop::LoopKind;
using loop::Monoid;
using loop::Space;
using loop::Statement;
using SK = loop::Statement::Kind;

namespace {

// The monoid by which a store combines the old value with another one, if the result does not depend on the order.
struct Change {
  Monoid monoid;
  Expr value;
};
std::optional<Change> change_of(const Statement& s, DType d) {
  Expr x = s.values[0];
  if (x->kind != Kind::call || x->args.size() != 2 || s.part) return {};
  constexpr std::pair<Fn, Monoid> kMonoids[] = {{Fn::add, Monoid::sum},    {Fn::mul, Monoid::prod},
                                                {Fn::max, Monoid::max},    {Fn::min, Monoid::min},
                                                {Fn::bit_or, Monoid::any}, {Fn::bit_and, Monoid::all}};
  for (auto [f, m] : kMonoids) {
    if (x->fn != f || !loop::is_order_free(m, d)) continue;
    for (size_t k : {0, 1}) {
      Expr former = x->args[k], value = x->args[1 - k];
      bool reads = false;
      loop::visit(value, [&](Expr e) { reads |= e->kind == Kind::load && e->slot == s.buffer; });
      if (former->kind == Kind::load && former->slot == s.buffer && same(former->args[0], s.offset) && !reads)
        return Change{m, value};
    }
  }
  return {};
}

class Lowering {
 public:
  Lowering(const loop::Nest& n, const loop::GridLimits& limits)
      : from_(n), limits_(limits), exchange_(limits.threads, fresh_) {
    int last = n.task_var, local = 0;
    each_statement(n.body, [&](const Statement& s) {
      if (s.kind == SK::loop) last = std::max(last, s.var);
      else local = std::max(local, s.var + 8);
    });
    fresh_.var = last + 1;
    fresh_.local = local + 1;
  }

  loop::Nest run() {
    to_ = from_;
    to_.identity = {};
    to_.threads = limits_.threads;
    to_.index_bits = limits_.index_bits;
    one_task_ = from_.tasks->kind == Kind::constant && from_.tasks->value.to_int() == 1;
    if (has_work_for_threads(from_.body, {})) to_.body = block(from_.body);
    else to_.body = task_each();
    place_arrays();
    place_barriers(to_);
    loop::verify(to_, limits_);
    return std::move(to_);
  }

 private:
  int threads() const { return limits_.threads; }
  // Places the smallest arrays in shared memory.
  void place_arrays() {
    int64_t left = limits_.shared_bytes;
    auto bytes = [](const Statement& a) {
      return std::max<int64_t>(1, a.extent->value.to_int()) * itemsize(a.dtype);
    };
    for (auto& a : exchange_.arrays()) left -= bytes(a);
    std::vector<Statement*> shared;
    for (auto& a : arrays_)
      if (a.space == Space::shared) shared.push_back(&a);
    std::stable_sort(shared.begin(), shared.end(), [&](auto* a, auto* b) { return bytes(*a) < bytes(*b); });
    for (auto* a : shared)
      if ((left -= bytes(*a)) < 0) a->space = Space::scratch;
    arrays_.insert(arrays_.end(), exchange_.arrays().begin(), exchange_.arrays().end());
    to_.body.insert(to_.body.begin(), arrays_.begin(), arrays_.end());
  }
  DType memory(int slot) const {
    return slot >= 0 ? from_.buffers[size_t(slot)].dtype : array_types_.at(-1 - slot);
  }

  // ---- how a loop runs

  enum class Form : uint8_t { around, threads, owners, atomics, scan };
  using Locals = std::set<int>;
  Form form_of(const Statement& s, const Locals& scope) const {
    if (s.kind != SK::loop) return Form::around;
    bool lanes = s.loop == LoopKind::vector;
    if (!lanes && (s.loop == LoopKind::unrolled || has_lanes(s.body, scope))) return Form::around;
    LoopUse use = iterations_of(s, scope);
    if (use.iterations == Iterations::independent) return Form::threads;
    if (use.iterations == Iterations::ordered) return scan_of(s, scope) ? Form::scan : Form::around;
    for (auto* c : use.colliding)
      if (!change_of(*c, memory(c->buffer))) return Form::owners;
    return Form::atomics;
  }
  // True if an inner loop should be distributed over the threads instead.
  bool has_lanes(const Block& b, Locals scope) const {
    for (auto& s : b) {
      if (s.kind == SK::loop && s.loop == LoopKind::vector && form_of(s, scope) != Form::around) return true;
      if (has_lanes(s.body, scope)) return true;
      declare(s, scope);
    }
    return false;
  }
  // True if loops have enough iterations for a block of threads; with a single task, any loop has.
  bool has_work_for_threads(const Block& b, Locals scope) const {
    for (auto& s : b) {
      Form form = form_of(s, scope);
      bool lanes = s.kind == SK::loop && s.loop == LoopKind::vector;
      if (form == Form::scan || (form != Form::around && (lanes || one_task_))) return true;
      if (has_work_for_threads(s.body, scope)) return true;
      declare(s, scope);
    }
    return false;
  }
  static void declare(const Statement& s, Locals& scope) {
    if (s.kind == SK::let || s.kind == SK::assign) scope.insert(s.var);
    if (s.kind == SK::accumulator)
      for (int k = 0; k < loop::components(s.monoid); ++k) scope.insert(s.var + k);
  }

  // ---- code of one thread

  // `thread`: the thread's number, which addresses arrays whose size is a parameter.
  Block of_thread(Block b, Expr thread) {
    Block out;
    for (auto& s : b) {
      if (s.loop == LoopKind::vector) s.loop = LoopKind::serial;
      s.body = of_thread(std::move(s.body), thread);
      out.push_back(std::move(s));
    }
    std::map<int, Expr> moved;  // by array whose size is a parameter: where it begins in scratch memory
    std::erase_if(out, [&](Statement& s) {
      if (s.kind != SK::array || s.extent->kind == Kind::constant) return false;
      Expr extent = s.extent;
      s.extent = extent * integer(threads());
      s.space = Space::scratch;
      moved[s.var] = thread * extent;
      arrays_.push_back(s);
      return true;
    });
    if (!moved.empty()) move(out, moved);
    return out;
  }
  static void move(Block& b, const std::map<int, Expr>& begin) {
    auto moved = [&](Expr x) {
      return loop::rewrite(x, [&](Expr e) -> Expr {
        auto it = e->kind == Kind::load ? begin.find(-1 - e->slot) : begin.end();
        return it == begin.end() ? Expr()
                                 : loop::load(e->slot, e->memory, {it->second + e->args[0]}, e->part);
      });
    };
    replace(b, moved);
    auto stores = [&](Block& in, auto& self) -> void {
      for (auto& s : in) {
        if (s.kind == SK::store)
          if (auto it = begin.find(-1 - s.buffer); it != begin.end()) s.offset = it->second + s.offset;
        self(s.body, self);
      }
    };
    stores(b, stores);
  }

  // Runs one task on each thread.
  Block task_each() {
    int var = fresh_.var++;
    Expr block_of = loop::index(from_.task_var), count = integer(threads());
    Expr task = block_of * count + loop::index(var);
    to_.tasks = loop::floordiv(from_.tasks + integer(threads() - 1), count);
    to_.cost = from_.cost * count;
    Block body = of_thread(from_.body, loop::index(var));
    std::pair<int, Expr> map{from_.task_var, task};
    replace(body, [&](Expr x) { return loop::substitute(x, std::span(&map, 1)); });
    Expr here = loop::min(from_.tasks - block_of * count, count);
    return {loop_over(LoopKind::threads, var, here, std::move(body))};
  }

  // ---- code of a block

  Block block(const Block& b) {
    Locals scope = scope_;
    Block out;
    for (auto& s : b) {
      statement(s, out);
      declare(s, scope_);
    }
    scope_ = std::move(scope);
    return out;
  }

  void statement(const Statement& s, Block& out) {
    switch (s.kind) {
      case SK::loop:
      case SK::condition: return with_totals(s, out);
      case SK::store: return by_first(s, out);
      case SK::array: return array(s);
      case SK::accumulate:
        if (auto it = totals_.find(s.var); it != totals_.end()) {
          Statement mine = s;
          mine.var = it->second;
          return by_first(std::move(mine), out);
        }
        break;
      default: break;
    }
    out.push_back(s);
  }
  // Adds a statement that only the first thread performs.
  void by_first(Statement s, Block& out) {
    if (!out.empty() && out.back().var == first_var_ && out.back().kind == SK::loop)
      return out.back().body.push_back(std::move(s));
    first_var_ = fresh_.var++;
    out.push_back(loop_over(LoopKind::threads, first_var_, integer(1), {std::move(s)}));
  }
  void array(const Statement& s) {
    Statement a = s;
    array_types_[s.var] = s.dtype;
    a.space = s.extent->kind == Kind::constant ? Space::shared : Space::scratch;
    arrays_.push_back(std::move(a));
  }

  // For each outer accumulator that threads inside of `s` update: declares a total for each thread, and combines the
  // totals after `s`.
  void with_totals(const Statement& s, Block& out) {
    std::vector<Statement> mine;
    for (auto& [var, a] : accumulators_of_threads(s)) {
      Statement own{SK::accumulator};
      own.var = fresh_.local;
      own.monoid = a.monoid;
      own.dtype = a.values[0].dtype();
      if (a.values.size() == 2) own.position = a.values[1].dtype();
      fresh_.local += loop::components(a.monoid);
      totals_[var] = own.var;
      mine.push_back(own);
      out.push_back(own);
    }
    around(s, out);
    std::vector<std::pair<int, Statement>> folded;
    for (auto& own : mine)
      for (auto& [var, local] : totals_)
        if (local == own.var) folded.push_back({var, own});
    for (auto& [var, own] : folded) totals_.erase(var);
    for (auto& [var, own] : folded) exchange_.tree(var, own, out);
  }
  // Accumulators in scope that nothing inside reads.
  std::map<int, Statement> accumulators_of_threads(const Statement& s) {
    std::map<int, Statement> accumulators;
    collect(s, scope_, accumulators);
    std::erase_if(accumulators,
                  [&](auto& f) { return totals_.count(f.first) || is_read(s, f.first, f.second.monoid); });
    return accumulators;
  }
  static bool is_read(const Statement& s, int var, Monoid m) {
    bool yes = false;
    auto look = [&](const Statement& t) {
      yes |= t.kind == SK::assign && t.var >= var && t.var < var + loop::components(m);
      each_expression(t, [&](Expr root) {
        loop::visit(root, [&](Expr e) {
          yes |= e->kind == Kind::local && e->slot >= var && e->slot < var + loop::components(m);
        });
      });
    };
    look(s);
    each_statement(s.body, look);
    return yes;
  }
  void collect(const Statement& s, Locals scope, std::map<int, Statement>& to) const {
    if (form_of(s, scope) == Form::threads) {
      auto use = iterations_of(s, scope);
      each_statement(s.body, [&](const Statement& t) {
        if (t.kind == SK::accumulate && use.accumulators.count(t.var) && scope_.count(t.var))
          to.emplace(t.var, t);
      });
      return;
    }
    for (auto& t : s.body) {
      collect(t, scope, to);
      declare(t, scope);
    }
  }

  void around(const Statement& s, Block& out) {
    switch (form_of(s, scope_)) {
      case Form::around: {
        Statement now = s;
        if (s.loop == LoopKind::vector) now.loop = LoopKind::serial;
        now.body = block(s.body);
        out.push_back(std::move(now));
        break;
      }
      case Form::threads: out.push_back(over_threads(s)); break;
      case Form::atomics: out.push_back(by_atomics(s)); break;
      case Form::owners: out.push_back(by_owners(s)); break;
      case Form::scan: scan(s, out); break;
    }
  }
  Statement over_threads(const Statement& s) {
    Block body = of_thread(s.body, loop::remainder(loop::index(s.var), integer(threads())));
    auto rename = [&](Block& b, auto& self) -> void {
      for (auto& t : b) {
        if (t.kind == SK::accumulate)
          if (auto it = totals_.find(t.var); it != totals_.end()) t.var = it->second;
        self(t.body, self);
      }
    };
    rename(body, rename);
    return loop_over(LoopKind::threads, s.var, s.extent, std::move(body));
  }
  Statement by_atomics(const Statement& s) {
    Statement now = s;
    auto colliding = iterations_of(s, scope_).colliding;
    auto change = [&](const Block& from, Block& to, auto& self) -> void {
      for (size_t k = 0; k < from.size(); ++k) {
        self(from[k].body, to[k].body, self);
        if (!colliding.count(&from[k])) continue;
        auto c = change_of(from[k], memory(from[k].buffer));
        to[k].kind = SK::atomic;
        to[k].monoid = c->monoid;
        to[k].values = {c->value};
      }
    };
    change(s.body, now.body, change);
    return over_threads(now);
  }
  Statement by_owners(const Statement& s) {
    Expr count = integer(threads());
    int var = fresh_.var++;
    auto colliding = iterations_of(s, scope_).colliding;
    std::set<int> own;
    each_statement(s.body, [&](const Statement& t) {
      if (t.kind == SK::array) own.insert(t.var);
    });
    auto share = [&](const Block& from, auto& self) -> Block {
      Block to;
      for (auto& t : from) {
        Statement now = t;
        now.body = self(t.body, self);
        if (t.kind == SK::store && !own.count(-1 - t.buffer)) {
          Expr by = colliding.count(&t) ? t.offset : loop::index(s.var);
          now = when(loop::eq(loop::remainder(by, count), loop::index(var)), {std::move(now)});
        }
        to.push_back(std::move(now));
      }
      return to;
    };
    Statement walk = s;
    walk.loop = LoopKind::serial;
    walk.body = of_thread(share(s.body, share), loop::index(var));
    return loop_over(LoopKind::threads, var, count, {std::move(walk)});
  }

  // ---- scans

  // A loop whose iterations are independent except for an outer accumulator that each one updates and then reads.
  struct Scan {
    size_t at;  // index of the statement that accumulates
    std::vector<DType> types;
  };
  std::optional<Scan> scan_of(const Statement& s, const Locals& scope) const {
    for (size_t k = 0; k < s.body.size(); ++k) {
      auto& t = s.body[k];
      if (t.kind != SK::accumulate || !scope.count(t.var)) continue;
      std::set<int> own{t.var};
      LoopUse use = iterations_of(s, scope, own);
      if (use.iterations != Iterations::independent || !use.accumulators.empty()) return {};
      for (size_t j = 0; j < s.body.size(); ++j) {
        bool before = j <= k && is_read(s.body[j], t.var, t.monoid);
        bool again = j != k && updates(s.body[j], t.var);
        bool only_once = j < k && s.body[j].kind != SK::let;  // the code before it is computed twice
        if (before || again || only_once) return {};
      }
      Scan scan{k, {}};
      DType position = t.values.size() == 2 ? t.values[1].dtype() : DType::Int64;
      for (auto& e : loop::identity(t.monoid, t.values[0].dtype(), position)) scan.types.push_back(e.dtype());
      return scan;
    }
    return {};
  }
  static bool updates(const Statement& s, int var) {
    bool yes = s.kind == SK::accumulate && s.var == var;
    each_statement(s.body, [&](const Statement& t) { yes |= t.kind == SK::accumulate && t.var == var; });
    return yes;
  }

  void scan(const Statement& s, Block& out) {
    Scan scan = *scan_of(s, scope_);
    const Statement& adds = s.body[scan.at];
    int tile = fresh_.var++, thread = fresh_.var++;
    Expr count = integer(threads()), here = loop::index(tile) * count + loop::index(thread);
    auto placed = [&](Block b) {
      std::pair<int, Expr> map{s.var, here};
      b = of_thread(std::move(b), loop::index(thread));
      replace(b, [&](Expr x) { return loop::substitute(x, std::span(&map, 1)); });
      return b;
    };
    Statement own{SK::accumulator};
    own.var = fresh_.local;
    own.monoid = adds.monoid;
    own.dtype = scan.types[0];
    if (scan.types.size() > 1) own.position = scan.types[1];
    fresh_.local += loop::components(adds.monoid);
    Exchange::Parts a = exchange_.parts_of(own), b = exchange_.parts_of(own, 1);

    Block first{s.body.begin(), s.body.begin() + long(scan.at) + 1};
    first.back().var = own.var;
    Block lift{own, when(here < s.extent, placed(std::move(first)))};
    exchange_.put(lift, a, loop::index(thread), locals(own.var, scan.types));
    Block steps{loop_over(LoopKind::threads, thread, count, std::move(lift))};
    for (int distance = 1; distance < threads(); distance *= 2, std::swap(a, b))
      steps.push_back(exchange_.neighbours(own.monoid, a, b, distance));
    steps.push_back(rest_of_scan(s, scan, a, thread, placed, here));
    exchange_.combine_into(adds.var, own.monoid, a, a.at(integer(threads() - 1)), steps);
    Expr tiles = loop::floordiv(s.extent + integer(threads() - 1), count);
    out.push_back(loop_over(LoopKind::serial, tile, tiles, std::move(steps)));
  }
  template <class F>
  Statement rest_of_scan(const Statement& s, const Scan& scan, const Exchange::Parts& p, int thread,
                         F&& placed, Expr here) {
    const Statement& adds = s.body[scan.at];
    Block rest{s.body.begin(), s.body.begin() + long(scan.at)};  // lets that the rest may need
    std::erase_if(rest, [](const Statement& t) { return t.kind != SK::let; });
    auto total = loop::combine(adds.monoid, locals(adds.var, scan.types), p.at(loop::index(thread)));
    std::map<int, Expr> now;
    for (size_t k = 0; k < total.size(); ++k) {
      rest.push_back(set(SK::let, fresh_.local, total[k]));
      now[adds.var + int(k)] = loop::local(fresh_.local++, total[k].dtype());
    }
    Block after{s.body.begin() + long(scan.at) + 1, s.body.end()};
    replace(after, [&](Expr x) { return expanded(x, now); });
    rest.insert(rest.end(), after.begin(), after.end());
    return loop_over(LoopKind::threads, thread, integer(threads()),
                     {when(here < s.extent, placed(std::move(rest)))});
  }

  const loop::Nest& from_;
  const loop::GridLimits& limits_;
  loop::Nest to_;
  Fresh fresh_{};
  Exchange exchange_;
  int first_var_ = -1;
  bool one_task_ = false;
  Locals scope_;
  std::map<int, int> totals_;  // by outer accumulator: the local of each thread's total
  std::map<int, DType> array_types_;
  Block arrays_;  // arrays of the block, declared at its beginning
};

}  // namespace

loop::Nest on_grid(const loop::Nest& n, const loop::GridLimits& limits) {
  internal_check(!n.threads) << "nest " << n.name << " is one of a grid already";
  if (n.end_var >= 0) {  // a block runs one task
    loop::Nest single = n;
    single.identity = {};
    single.end_var = -1;
    std::pair<int, Expr> end{n.end_var, loop::index(n.task_var) + int64_t(1)};
    replace(single.body, [&](Expr x) { return loop::substitute(x, std::span(&end, 1)); });
    return on_grid(single, limits);
  }
  internal_check(std::has_single_bit(unsigned(limits.threads))) << limits.threads << " threads in a block";
  return Lowering(n, limits).run();
}

}  // namespace facula::schedule
