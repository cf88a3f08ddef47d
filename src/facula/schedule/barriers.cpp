#include "facula/schedule/barriers.h"

#include <algorithm>
#include <map>
#include <vector>

#include "facula/schedule/parallel.h"
#include "facula/schedule/statements.h"

namespace facula::schedule {

using loop::Expr;
using loop::Kind;
using loop::LoopKind;
using loop::Statement;
using SK = loop::Statement::Kind;

namespace {

// The variable of every loop over threads, so that places in different loops are comparable.
constexpr int kThread = 1 << 28;

// `place`: the offset as a function of the thread's iteration; null if it is unknown or does not depend on the
// thread.
struct Access {
  int memory, part;
  bool writes, atomic;
  Expr place;
  bool first = false;  // only the first thread performs it
};
using Accesses = std::vector<Access>;

class Placer {
 public:
  explicit Placer(loop::Nest& n) : n_(n) {}
  void run() {
    find_arrays(n_.body);
    block(n_.body);
    bool busy = std::any_of(open_.begin(), open_.end(), [&](auto& a) { return a.memory < 0; });
    if (busy) n_.body.push_back(barrier());
  }

 private:
  static Statement barrier() { return Statement{SK::barrier}; }

  void find_arrays(const loop::Block& b) {
    each_statement(b, [&](const Statement& s) {
      if (s.kind == SK::array && s.space == loop::Space::local) own_.insert(s.var);
    });
  }
  // All buffers that may overlap count as one memory.
  static constexpr int kShared = 1 << 28;
  int memory(int slot) const { return slot >= 0 && !n_.buffers[size_t(slot)].unique ? kShared : slot; }

  void add(Accesses& to, int slot, int part, bool writes, bool atomic, Expr place) const {
    if (slot < 0 && own_.count(-1 - slot)) return;
    if (!writes && slot >= 0 && n_.buffers[size_t(slot)].unique && !n_.buffers[size_t(slot)].written) return;
    to.push_back({memory(slot), part, writes, atomic, atomic ? Expr() : place});
  }
  void loads(Accesses& to, const Statement& s, const std::map<int, Expr>* places) const {
    each_expression(s, [&](Expr root) {
      loop::visit(root, [&](Expr e) {
        if (e->kind == Kind::load)
          add(to, e->slot, e->part, false, false, places ? expanded(e->args[0], *places) : Expr());
      });
    });
  }
  // The accesses of a loop over threads, in terms of its iteration.
  Accesses accesses(const Statement& loop) const {
    Accesses all;
    std::map<int, Expr> lets;
    std::set<int> changing;
    each_statement(loop.body, [&](const Statement& s) {
      if (s.kind == SK::assign || s.kind == SK::accumulate || s.kind == SK::accumulator)
        changing.insert(s.var);
    });
    each_statement(loop.body, [&](const Statement& s) {
      loads(all, s, &lets);
      if (s.kind == SK::let) lets[s.var] = expanded(s.values[0], lets);
      if (s.kind == SK::store || s.kind == SK::atomic)
        add(all, s.buffer, s.part, true, s.kind == SK::atomic, expanded(s.offset, lets));
    });
    std::pair<int, Expr> thread{loop.var, loop::index(kThread)};
    bool first = loop.extent->kind == Kind::constant && loop.extent->value.to_int() == 1;
    for (auto& a : all) {
      if (a.place) a.place = of_thread(loop::substitute(a.place, std::span(&thread, 1)), changing);
      a.first = first;
    }
    return all;
  }
  // The offset, or null if it depends on memory or does not depend on the thread.
  static Expr of_thread(Expr place, const std::set<int>& changing) {
    bool is_function = true, own = false;
    loop::visit(place, [&](Expr e) {
      own |= e->kind == Kind::index && e->slot == kThread;
      is_function &= e->kind != Kind::load && !(e->kind == Kind::local && changing.count(e->slot));
    });
    return is_function && own ? place : Expr();
  }

  static bool clash(const Access& a, const Access& b) {
    if (a.memory != b.memory || !(a.writes || b.writes) || (a.atomic && b.atomic)) return false;
    if ((a.part && b.part && a.part != b.part) || (a.first && b.first)) return false;
    return !(a.place && b.place && same(a.place, b.place));
  }
  bool clashes(const Accesses& with) const {
    for (auto& a : open_)
      for (auto& b : with)
        if (clash(a, b)) return true;
    return false;
  }
  void note(const Accesses& more) {
    for (auto& a : more) {
      bool is_listed = std::any_of(open_.begin(), open_.end(), [&](auto& b) {
        return a.memory == b.memory && a.part == b.part && a.writes == b.writes && a.atomic == b.atomic &&
               a.first == b.first && same(a.place, b.place);
      });
      if (!is_listed) open_.push_back(a);
    }
  }

  // All accesses of a statement and of the statements inside of it.
  Accesses all_of(const Statement& s) const {
    if (s.kind == SK::loop && s.loop == LoopKind::threads) return accesses(s);
    Accesses all;
    loads(all, s, nullptr);
    for (auto& inner : s.body) {
      auto more = all_of(inner);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  void block(loop::Block& b) {
    loop::Block out;
    for (auto& s : b) {
      bool threads = s.kind == SK::loop && s.loop == LoopKind::threads;
      Accesses own;
      if (threads) own = accesses(s);
      else loads(own, s, nullptr);
      if (clashes(own)) {
        out.push_back(barrier());
        open_.clear();
      }
      note(own);
      if (!threads && !s.body.empty()) {
        auto before = open_;
        if (s.kind == SK::loop)
          for (auto& inner : s.body) note(all_of(inner));  // of the previous iteration
        block(s.body);
        note(before);  // of the code before, if the loop has no iterations
      }
      out.push_back(std::move(s));
    }
    b = std::move(out);
  }

  loop::Nest& n_;
  std::set<int> own_;
  Accesses open_;  // since the last barrier
};

}  // namespace

void place_barriers(loop::Nest& n) { Placer(n).run(); }

}  // namespace facula::schedule
