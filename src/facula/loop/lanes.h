// What is known beforehand of the values of a nest, and how they differ from lane to lane in a loop whose iterations go
// side by side. These are facts: what is made of them is decided in schedule/.
//   requires: a verified nest in which each local is declared by one statement; it outlives its facts and does not change
#pragma once
#include <map>
#include <optional>
#include <set>

#include "facula/loop/nest.h"
#include "facula/loop/seen.h"

namespace facula::loop {

class NestFacts {
 public:
  explicit NestFacts(const Nest& n);

  const Nest& nest() const { return nest_; }
  const Statement* declaration(int local) const;  // of a local or an array; null: nobody declares it
  Expr definition(int local) const;               // of a let; null for other locals
  DType memory(int slot) const;                   // of a buffer or array, as loads and stores number them
  bool is_written(int slot) const {
    return written_.count(slot);
  }  // by the nest, perhaps under another number
  // Does it read what statements change: memory that is written, locals that are no lets?
  bool is_volatile(Expr e);
  // Can it be another number for other content of memory, and not only for other sizes and indices?
  bool depends_on_data(Expr e);
  // With what they stand for in place of lets that do not change, so that equal values are equal expressions.
  Expr spelled_out(Expr e);
  Expr lasting_definition(int local);  // of a let that is not volatile; else null

 private:
  void scan(const Block& block);
  void declare(int local, const Statement& s);
  bool is_data(int local);

  const Nest& nest_;
  std::map<int, const Statement*> declarations_;
  std::map<int, std::vector<Expr>> given_;  // what lets and assignments give a local
  std::set<int> mutable_, written_;
  std::set<int> asked_;  // locals of which `is_data` asks at the moment
  NodeMap<bool> volatile_;
};

// How an integer moves from one lane to the next: not at all, by a stride that is the same everywhere, or in no simple way.
struct Motion {
  bool simple = false;
  Expr stride;                              // null: zero
  std::optional<int64_t> constant() const;  // the stride, if it is a number
};

// Elements of which each is read by `times` lanes side by side; the first one by `times` - `from`.
struct Repeated {
  int64_t times, from;
  int64_t at(int64_t lane) const { return (from + lane) / times; }
};

// Is it memory of dtype `d`, moved as it lies there?
bool is_move(Expr e, DType d);

class LaneScope {
 public:
  explicit LaneScope(NestFacts& facts) : facts_(facts) {}  // in no lanes: nothing differs
  LaneScope(NestFacts& facts, const Statement& loop);      // in the lanes of a loop
  LaneScope(NestFacts& facts, int lanes)
      : lanes(lanes), facts_(facts) {}  // of locals that are vectors, in no loop

  int lanes = 1;  // side by side at the moment

  NestFacts& facts() const { return facts_; }
  bool is_lane_index(Expr e) const { return e->kind == Kind::index && e->slot == var_; }
  bool varies(Expr e);  // may it differ from lane to lane?
  Motion motion(Expr e);
  bool is_lane_array(int local) const {
    return arrays_.count(local);
  }  // one element a lane, beside each other
  // Accumulators of outside that the loop updates, by their first local; a statement that does.
  const std::map<int, const Statement*>& accumulators() const { return accumulators_; }
  // Does an iteration read what it adds to?
  bool scans() const;
  // Why iterations cannot go side by side; null if they can.
  const char* hazard();
  // Is it all sums of floating numbers, into accumulators of each lane?
  bool only_sums(const Block& body);
  // A condition that holds in every lane if it does in the first and in the last one.
  bool is_convex(Expr condition);
  Expr in_last_lane(Expr e);
  // The remainder of the first lane, if x is the lane's index and a constant, by n, which divides the lanes: vectors begin
  // at multiples of their length.
  std::optional<int64_t> phase(Expr x, Expr n);
  std::optional<Repeated> repeated(Expr offset);
  // If `offset` is element `var` of rows of `count` elements, which lie one after the other, one a lane: that of element 0.
  Expr start_of_row(int var, int64_t count, Expr offset);

 private:
  void survey(const Block& block);
  const char* hazard_of_locals(const Block& block);
  const char* hazard_of_scans() const;
  std::set<int> totals() const;  // locals of the accumulators
  bool reads(const Statement& s, const std::set<int>& locals) const;
  bool adds(const Statement& s) const;  // to accumulators of outside
  struct Places {
    std::map<std::pair<int, int>, std::set<const Node*>> loads, stores;  // offsets, by buffer and part
    std::set<int> wild;  // stored to at places of no simple motion
  };
  const char* hazard_of_places(const Block& block, Places& places, Seen& seen);

  NestFacts& facts_;
  const Statement* loop_ = nullptr;
  int var_ = -1;
  std::set<int> inside_, varying_, arrays_;  // locals
  std::map<int, const Statement*> accumulators_;
  NodeMap<bool> varies_;
};

}  // namespace facula::loop
