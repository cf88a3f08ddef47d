#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "facula/loop/lane_access.h"
#include "facula/loop/nest.h"
#include "facula/loop/simplify.h"
#include "facula/loop/tiles.h"

namespace facula::loop {
namespace {

// Checks the operands of a node and returns the dtype that it must have.
DType type_of(Expr x) {
  auto& a = x->args;
  auto operands = [&](size_t n) {
    internal_check(a.size() == n) << print(x) << ": " << n << " operands expected";
  };
  auto indices = [&] {
    for (auto& i : a) internal_check(i.dtype() == DType::Int64) << print(x) << ": an index is " << i.dtype();
  };
  internal_check(compute_type(x->dtype) == x->dtype)
      << print(x) << ": " << x->dtype << " exists in memory only";
  switch (x->kind) {
    case Kind::constant:
    case Kind::local: operands(0); return x->dtype;
    case Kind::index:
    case Kind::position:
    case Kind::size:
    case Kind::param: operands(0); return DType::Int64;
    case Kind::load: indices(); return x->part ? real_of(compute_type(x->memory)) : compute_type(x->memory);
    case Kind::cast: operands(1); return x->dtype;
    case Kind::call: return call_type(x->fn, a);
    case Kind::select:
      operands(3);
      internal_check(a[0].dtype() == DType::Bool && a[1].dtype() == a[2].dtype())
          << print(x) << ": operand dtypes";
      return a[1].dtype();
    case Kind::reduce:
    case Kind::scan:
      operands(values(x->monoid));
      internal_check(!has_position(x->monoid) || is_integral(a[1].dtype()))
          << print(x) << ": a position is " << a[1].dtype();
      internal_check(!x->bound.empty()) << print(x) << ": nothing to fold over";
      for (auto& b : x->bound)
        internal_check(b.extent.dtype() == DType::Int64) << print(x) << ": an extent is " << b.extent.dtype();
      return a[0].dtype();
    case Kind::part:
      operands(1);
      internal_check((a[0]->kind == Kind::reduce || a[0]->kind == Kind::scan) &&
                     x->slot < components(a[0]->monoid))
          << print(x);
      return x->slot == 1 && a[0]->args.size() == 2 ? a[0]->args[1].dtype() : a[0].dtype();
    case Kind::random:
    case Kind::check:
      operands(2);
      indices();
      return DType::Int64;
    case Kind::divisor:
      operands(1);
      internal_check(is_integral(a[0].dtype())) << print(x) << ": not an integer";
      return a[0].dtype();
  }
  __builtin_unreachable();
}

void check_types(Expr root) {
  visit(root, [](Expr x) {
    DType d = type_of(x);
    internal_check(d == x->dtype) << print(x) << " is " << x->dtype << " and should be " << d;
  });
}

using Vars = std::vector<int>;  // sorted
Vars free_vars(Expr root) {
  std::unordered_map<const Node*, Vars> of;
  visit(root, [&](Expr x) {
    std::set<int> s;
    if (x->kind == Kind::index) s.insert(x->slot);
    for (auto& a : x->args) {
      auto& v = of[a.get()];
      s.insert(v.begin(), v.end());
    }
    for (auto& b : x->bound) s.erase(b.var);
    for (auto& b : x->bound) {
      auto& v = of[b.extent.get()];
      s.insert(v.begin(), v.end());
    }
    if (x->kind == Kind::scan) s.insert(x->slot);
    of[x.get()] = Vars(s.begin(), s.end());
  });
  return of[root.get()];
}

// Finds the locals that may differ between threads.
class Divergence {
 public:
  explicit Divergence(const Nest& n) {
    size_t before;
    do {  // repeats, since loops carry locals around
      before = locals_.size();
      block(n.body, false);
    } while (locals_.size() != before);
  }
  bool differs(Expr x) const {
    bool yes = false;
    visit(x, [&](Expr e) { yes |= e->kind == Kind::local && locals_.count(e->slot); });
    return yes;
  }
  const std::set<int>& locals() const { return locals_; }

 private:
  void block(const Block& b, bool in_threads) {
    using SK = Statement::Kind;
    for (auto& s : b) {
      bool changes = s.kind == SK::let || s.kind == SK::assign || s.kind == SK::accumulate;
      bool from = std::any_of(s.values.begin(), s.values.end(), [&](Expr v) { return differs(v); });
      if (changes && (in_threads || from))
        for (int k = 0; k < (s.kind == SK::accumulate ? components(s.monoid) : 1); ++k)
          locals_.insert(s.var + k);
      block(s.body, in_threads || (s.kind == SK::loop && s.loop == LoopKind::threads));
    }
  }
  std::set<int> locals_;
};

class NestVerifier {
 public:
  explicit NestVerifier(const Nest& n) : n_(n), divergence_(n) {}
  void run() {
    internal_check(n_.threads >= 0 && (n_.index_bits == 32 || n_.index_bits == 64))
        << where() << n_.threads << " threads, indices of " << n_.index_bits << " bits";
    internal_check(!n_.lanes || (!n_.threads && n_.lanes > 1 && is_small_power(n_.lanes)))
        << where() << n_.lanes << " lanes";
    if (n_.lanes) facts_.emplace(n_);
    for (auto& b : n_.buffers) internal_check(b.dtype < DType::count) << where() << "a buffer without dtype";
    internal_check(n_.tasks && n_.cost) << where() << "tasks or cost is missing";
    expression(n_.tasks, DType::Int64);
    expression(n_.cost, DType::Int64);
    indices_.insert(n_.task_var);
    if (n_.end_var >= 0) {
      internal_check(!n_.threads && n_.end_var != n_.task_var)
          << where() << "pieces of tasks on a grid, or without end";
      indices_.insert(n_.end_var);
    }
    block(n_.body);
    if (n_.lanes) accesses();
  }

 private:
  struct Local {
    DType dtype;
    bool assignable;
    int monoid = -1;
  };

  std::string where() const { return "nest " + n_.name + ": "; }

  void expression(Expr x, std::optional<DType> wanted = {}) {
    internal_check(bool(x)) << where() << "an expression is missing";
    check_types(x);
    internal_check(!wanted || x.dtype() == *wanted)
        << where() << print(x) << " is " << x.dtype() << ", not " << *wanted;
    visit(x, [&](Expr e) {
      switch (e->kind) {
        case Kind::index:
          internal_check(indices_.count(e->slot)) << where() << "i" << e->slot << " is not in scope";
          break;
        case Kind::param:
          internal_check(e->slot >= 0 && e->slot < n_.params)
              << where() << "p" << e->slot << " does not exist";
          break;
        case Kind::local: {
          auto it = locals_.find(e->slot);
          internal_check(it != locals_.end()) << where() << "v" << e->slot << " is not in scope";
          internal_check(it->second.dtype == e->dtype)
              << where() << "v" << e->slot << " is " << it->second.dtype << ", not " << e->dtype;
          break;
        }
        case Kind::load: {
          internal_check(e->args.size() == 1) << where() << print(e) << ": a nest loads at one offset";
          DType d = memory(e->slot);
          internal_check(e->memory == d) << where() << print(e) << ": the buffer is " << d;
          break;
        }
        case Kind::reduce:
        case Kind::scan:
        case Kind::part:
        case Kind::position:
        case Kind::size: internal_check(false) << where() << print(e) << " cannot stand in a nest"; break;
        default: break;
      }
    });
  }

  DType memory(int slot) {
    if (slot >= 0) {
      internal_check(size_t(slot) < n_.buffers.size()) << where() << "buffer " << slot << " does not exist";
      return n_.buffers[size_t(slot)].dtype;
    }
    auto it = arrays_.find(-1 - slot);
    internal_check(it != arrays_.end()) << where() << "array v" << -1 - slot << " is not in scope";
    return it->second;
  }

  void block(const Block& b) {
    auto indices = indices_;
    auto locals = locals_;
    auto arrays = arrays_;
    for (auto& s : b) statement(s);
    indices_ = std::move(indices);
    locals_ = std::move(locals);
    arrays_ = std::move(arrays);
  }

  void declare(int v, Local l) {
    internal_check(v >= 0 && !locals_.count(v) && !arrays_.count(v))
        << where() << "v" << v << " is declared twice";
    locals_[v] = l;
  }

  Expr only(const Statement& s) {
    internal_check(s.values.size() == 1) << where() << "a statement takes one value, not " << s.values.size();
    return s.values[0];
  }

  void loop_over(const Statement& s) {
    expression(s.extent, DType::Int64);
    internal_check(indices_.insert(s.var).second) << where() << "i" << s.var << " runs twice";
    bool threads = s.loop == LoopKind::threads;
    if (threads) together("a loop over threads");
    internal_check(!n_.threads || s.loop != LoopKind::vector) << where() << "lanes in a nest of a grid";
    std::optional<LaneScope> lanes;
    if (n_.lanes && s.loop == LoopKind::vector) lanes.emplace(*facts_, s);
    how_it_runs(s, lanes ? &*lanes : nullptr);
    auto* outer = std::exchange(lanes_, lanes ? &*lanes : lanes_);
    nested(s.extent, threads, s.body);
    lanes_ = outer;
    indices_.erase(s.var);
  }
  static bool is_small_power(int n) { return n > 0 && n <= 1024 && std::has_single_bit(unsigned(n)); }
  // Checks how a loop of a nest for lanes runs. `own`: the scope of a loop over lanes.
  void how_it_runs(const Statement& s, LaneScope* own) {
    auto& l = s.lanes;
    auto refuse = [&](bool wrong, const char* what) {
      internal_check(!wrong) << where() << "the loop over i" << s.var << what;
    };
    refuse((l.width > 0) != bool(own), own ? " has no lanes" : " has lanes and is none over lanes");
    for (int n : {own ? l.width : 1, l.unroll, l.strip, l.chains})
      refuse(!is_small_power(n), " runs by no power of two up to 1024");
    refuse(l.prefetch && !own && l.unroll == 1, " prefetches and has no rounds");
    auto* constant = s.extent->kind == loop::Kind::constant ? s.extent.get() : nullptr;
    if (own) {
      refuse(lanes_, " has lanes inside of lanes");
      refuse(l.chains > 1, " over lanes has chains");
      refuse(l.width < 2, " has one lane");
      refuse(l.strip > 1 && (l.unroll > 1 || !own->accumulators().empty()), " has strips beside rounds");
      refuse(l.scan && (l.unroll > 1 || own->accumulators().empty()), " scans in rounds or nothing");
      refuse(!l.tail && !(constant && constant->value.to_int() % (l.width * l.unroll) == 0), " has a tail");
      auto* why = own->hazard();
      internal_check(!why) << where() << "the loop over i" << s.var << " cannot go in lanes: " << why;
      return;
    }
    refuse(l.strip > 1 || !l.tail || l.scan, " has vectors and no lanes");
    refuse(l.unroll > 1 && (!n_.lanes || lanes_ || s.loop != LoopKind::serial || l.chains > 1),
           " has rounds and is no serial loop outside of lanes");
    refuse(n_.lanes && s.loop == LoopKind::unrolled && !constant,
           " is unrolled for an unknown number of steps");
    if (l.chains == 1) return;
    refuse(!lanes_ || s.loop != LoopKind::serial, " has chains and is no serial loop inside of lanes");
    refuse(lanes_->varies(s.extent) || !lanes_->only_sums(s.body), " has chains and does not only add up");
  }
  // Checks that the statements in lanes can access memory as they state, and that no others state it.
  void accesses() {
    each_in_lanes(*facts_, n_.body, [&](const LanePlace& at, const Block& block, size_t k) {
      auto* why = impossible_access(at, block, k);
      internal_check(!why) << where() << "a statement in lanes accesses by " << why;
    });
  }
  // Verifies the body of a loop or condition. Threads that may disagree about `by` do not all enter it.
  void nested(Expr by, bool in_threads, const Block& body) {
    bool threads = std::exchange(in_threads_, in_threads_ || in_threads);
    bool diverged = std::exchange(diverged_, diverged_ || divergence_.differs(by));
    block(body);
    in_threads_ = threads;
    diverged_ = diverged;
  }
  // Requires that all threads of a block reach the statement.
  void together(const char* what) {
    internal_check(n_.threads) << where() << what << " in a nest of no grid";
    internal_check(!in_threads_) << where() << what << " inside of a loop over threads";
    internal_check(!diverged_) << where() << what << " where not every thread of the block comes by";
  }
  void array(const Statement& s) {
    expression(s.extent, DType::Int64);
    if (s.space != Space::local) together("an array of the block");
    else internal_check(!n_.threads || in_threads_) << where() << "v" << s.var << " is an array of no thread";
    internal_check(s.space != Space::shared || s.extent->kind == loop::Kind::constant)
        << where() << "the size of the shared array v" << s.var << " is not known beforehand";
    internal_check(s.var >= 0 && !locals_.count(s.var) && !arrays_.count(s.var))
        << where() << "v" << s.var << " is declared twice";
    arrays_[s.var] = s.dtype;
  }
  void put(const Statement& s) {
    expression(s.offset, DType::Int64);
    DType d = memory(s.buffer);
    internal_check(!n_.threads || in_threads_) << where() << "every thread of the block writes one element";
    internal_check(s.buffer < 0 || n_.buffers[size_t(s.buffer)].written)
        << where() << "buffer " << s.buffer << " is not marked as written";
    internal_check(s.part == 0 || is_complex(d)) << where() << "part " << s.part << " of " << d;
    expression(only(s), s.part ? real_of(compute_type(d)) : compute_type(d));
    if (s.kind != Statement::Kind::atomic) return;
    internal_check(n_.threads) << where() << "an atomic change in a nest of no grid";
    internal_check(is_order_free(s.monoid, d))
        << where() << "an atomic " << name(s.monoid) << " of " << d << " depends on the order";
  }

  void statement(const Statement& s) {
    using Kind = Statement::Kind;
    internal_check(lanes_ || s.accesses.empty()) << where() << "a statement outside of lanes states accesses";
    switch (s.kind) {
      case Kind::loop: loop_over(s); break;
      case Kind::condition:
        expression(only(s), DType::Bool);
        nested(s.values[0], false, s.body);
        break;
      case Kind::barrier: together("a barrier"); break;
      case Kind::let:
        expression(only(s));
        declare(s.var, {s.values[0].dtype(), false});
        break;
      case Kind::assign: {
        expression(only(s));
        auto it = locals_.find(s.var);
        if (it == locals_.end()) return declare(s.var, {s.values[0].dtype(), true});
        internal_check(it->second.assignable) << where() << "v" << s.var << " is constant";
        internal_check(it->second.dtype == s.values[0].dtype())
            << where() << "v" << s.var << " is " << it->second.dtype;
        break;
      }
      case Kind::accumulator:
        for (int k = 0; k < components(s.monoid); ++k) {
          bool position = k == 1 && values(s.monoid) == 2;
          declare(s.var + k, {position ? s.position : s.dtype, true, k ? -1 : int(s.monoid)});
        }
        break;
      case Kind::accumulate: {
        auto it = locals_.find(s.var);
        internal_check(it != locals_.end() && it->second.monoid == int(s.monoid))
            << where() << "v" << s.var << " is no accumulator of " << name(s.monoid);
        auto wanted = size_t(values(s.monoid));
        internal_check(has_position(s.monoid) || !s.rising)
            << where() << name(s.monoid) << " has no positions";
        internal_check(s.values.size() == wanted)
            << where() << name(s.monoid) << " takes " << wanted << " values";
        expression(s.values[0], it->second.dtype);
        if (wanted == 2) expression(s.values[1], locals_.at(s.var + 1).dtype);
        break;
      }
      case Kind::array: array(s); break;
      case Kind::tiles: tiles(s); break;
      case Kind::store:
      case Kind::atomic: put(s); break;
    }
  }
  void tiles(const Statement& s) {
    internal_check(s.product && s.values.size() == 3) << where() << "a product of tiles is not complete";
    internal_check(!n_.threads && !lanes_) << where() << "a product of tiles on a grid or in lanes";
    for (auto& v : s.values) expression(v, DType::Int64);
    expression(s.offset, DType::Int64);
    auto& p = *s.product;
    internal_check(s.buffer >= 0 && p.left >= 0 && p.right >= 0)
        << where() << "a product of tiles takes no arrays";
    internal_check(memory(s.buffer) == p.dtype() && n_.buffers[size_t(s.buffer)].written)
        << where() << "a product of tiles goes to " << p.dtype() << " that is written";
    internal_check(memory(p.left) == DType::Int32 && memory(p.right) == DType::Int32)
        << where() << "a product of tiles takes words";
    for (auto& phase : p.phases)
      for (auto& pair : phase)
        internal_check(pair.left < p.parts && pair.right < p.parts && pair.left >= 0 && pair.right >= 0)
            << where() << "a product of tiles has " << p.parts << " parts";
    if (s.body.empty()) return;
    internal_check(indices_.insert(s.var).second) << where() << "i" << s.var << " runs twice";
    nested(s.values[2], false, s.body);
    indices_.erase(s.var);
  }

  const Nest& n_;
  const Divergence divergence_;
  bool in_threads_ = false, diverged_ = false;
  std::optional<NestFacts> facts_;  // for a nest for lanes
  LaneScope* lanes_ = nullptr;      // of the loop over lanes around the statement
  std::set<int> indices_;
  std::map<int, Local> locals_;
  std::map<int, DType> arrays_;
};

}  // namespace

void verify(Expr x, std::span<const int> free) {
  internal_check(bool(x)) << "an expression is missing";
  check_types(x);
  for (int v : free_vars(x))
    internal_check(std::find(free.begin(), free.end(), v) != free.end())
        << "i" << v << " is not in scope in " << print(x);
}

void verify(const Nest& n) { NestVerifier(n).run(); }

namespace {
int64_t shared_bytes(const Block& b) {
  int64_t sum = 0;
  for (auto& s : b) {
    if (s.kind == Statement::Kind::array && s.space == Space::shared)
      sum += std::clamp<int64_t>(s.extent->value.to_int(), 1, int64_t(1) << 40) * itemsize(s.dtype);
    sum += shared_bytes(s.body);
  }
  return sum;
}
}  // namespace

void verify(const Nest& n, const GridLimits& limits) {
  verify(n);
  internal_check(n.threads > 0 && n.threads <= limits.threads)
      << "nest " << n.name << ": blocks of " << n.threads << " threads; " << limits.threads
      << " are the most";
  int64_t bytes = shared_bytes(n.body);
  internal_check(bytes <= limits.shared_bytes) << "nest " << n.name << ": shared arrays of " << bytes
                                               << " bytes; " << limits.shared_bytes << " are the most";
}

void verify(const Nest& n, const LaneLimits& limits) {
  verify(n);
  internal_check(n.lanes == limits.lanes)
      << "nest " << n.name << ": for " << n.lanes << " lanes, not " << limits.lanes;
  each_statement(n.body, [&](const Statement& s) {
    auto& l = s.lanes;
    internal_check(l.width <= 4 * limits.lanes && l.unroll <= limits.unroll && l.strip <= limits.strip &&
                   l.chains <= limits.chains && l.prefetch <= limits.prefetch)
        << "nest " << n.name << ": the loop over i" << s.var << " asks for more than the machine has";
  });
}

std::set<int> divergent_locals(const Nest& n) { return Divergence(n).locals(); }

bool is_order_free(Monoid m, DType d) {
  switch (m) {
    case Monoid::sum:
    case Monoid::prod:
    case Monoid::max:
    case Monoid::min: return category(d) <= Category::integral;
    case Monoid::any:
    case Monoid::all: return d == DType::Bool;
    default: return false;
  }
}

}  // namespace facula::loop
