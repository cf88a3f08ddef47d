// Static facts about the values of a nest, and how they differ between the lanes of a loop. schedule/ makes decisions
// based on these facts.
//   requires: a verified nest that declares each local by one statement; it must outlive its facts and not change
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
  const Statement* declaration(int local) const;  // of a local or an array; null if it is not declared
  Expr definition(int local) const;               // the value of a let; null for other locals
  DType memory(int slot) const;  // by slot of a load or store: the dtype of a buffer or array
  bool is_written(int slot) const {
    return written_.count(slot);
  }  // by the nest, possibly under another number
  // True if e reads what statements change: memory that is written, or locals other than lets.
  bool is_volatile(Expr e);
  // True if e depends on the contents of memory, and not only on sizes and indices.
  bool depends_on_data(Expr e);
  // Replaces non-volatile lets by their definitions, so that equal values become equal expressions.
  Expr spelled_out(Expr e);
  Expr lasting_definition(int local);  // of a let that is not volatile; else null

 private:
  void scan(const Block& block);
  void declare(int local, const Statement& s);
  bool is_data(int local);

  const Nest& nest_;
  std::map<int, const Statement*> declarations_;
  std::map<int, std::vector<Expr>> values_;  // by local: the values of its let or assignments
  std::set<int> mutable_, written_;
  std::set<int> asked_;  // locals that an enclosing call of `is_data` is examining
  NodeMap<bool> volatile_;
};

// How an integer changes from one lane to the next: not at all, by a constant stride, or in another way (not
// `simple`).
struct Motion {
  bool simple = false;
  Expr stride;                              // null: zero
  std::optional<int64_t> constant() const;  // the stride if it is a number
};

// A sequence of elements, each one read by `times` neighbouring lanes; the first one by `times` - `from`.
struct Repeated {
  int64_t times, from;
  int64_t at(int64_t lane) const { return (from + lane) / times; }
};

// True if e is an element of memory of dtype `d` that is moved without a conversion.
bool is_move(Expr e, DType d);
// True if e is a bfloat16 value already, so that a store need not round it.
bool is_bfloat16(Expr e);

class LaneScope {
 public:
  explicit LaneScope(NestFacts& facts) : facts_(facts) {}  // outside of a loop over lanes: nothing varies
  LaneScope(NestFacts& facts, const Statement& loop);      // in the lanes of a loop
  LaneScope(NestFacts& facts, int lanes)
      : lanes(lanes), facts_(facts) {}  // locals are vectors of `lanes`, outside of a loop

  int lanes = 1;  // number of lanes

  NestFacts& facts() const { return facts_; }
  bool is_lane_index(Expr e) const { return e->kind == Kind::index && e->slot == var_; }
  bool varies(Expr e);  // true if it may differ between lanes
  Motion motion(Expr e);
  bool is_lane_array(int local) const {
    return arrays_.count(local);
  }  // one element per lane, stored side by side
  // Outer accumulators that the loop updates, by their first local, with one statement that updates each.
  const std::map<int, const Statement*>& accumulators() const { return accumulators_; }
  // True if an iteration reads an accumulator that it updates.
  bool scans() const;
  // The reason why iterations cannot run in lanes; null if they can.
  const char* hazard();
  // True if the block only sums floating-point numbers into accumulators of each lane.
  bool only_sums(const Block& body);
  // True if the condition holds in every lane whenever it holds in the first and in the last one.
  bool is_convex(Expr condition);
  Expr in_last_lane(Expr e);
  // The remainder of x by n in the first lane, if x is the lane's index plus a constant, and n divides the number of
  // lanes: vectors begin at multiples of their length.
  std::optional<int64_t> phase(Expr x, Expr n);
  std::optional<Repeated> repeated(Expr offset);
  // If `offset` is element `var` of rows of `count` elements that are stored one behind the other, one row per lane:
  // the offset of element 0.
  Expr start_of_row(int var, int64_t count, Expr offset);

 private:
  void survey(const Block& block);
  const char* hazard_of_locals(const Block& block);
  const char* hazard_of_scans() const;
  std::set<int> totals() const;  // locals of the outer accumulators
  bool reads(const Statement& s, const std::set<int>& locals) const;
  bool adds(const Statement& s) const;  // updates an outer accumulator
  struct Places {
    std::map<std::pair<int, int>, std::set<const Node*>> loads, stores;  // offsets, by buffer and part
    std::set<int> wild;  // buffers with a store at a place that is not affine in the lane
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
