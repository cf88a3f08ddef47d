// SweepWriter: the statements of a row's sweeps. Reductions and scans become accumulators and loops, in the order in which
// their values are needed; reductions over equal domains share a sweep.
//   example: y = x - sum(x) over a row  ->  acc v0 = sum; for i1 { v0 += x[i1] }; for i1 { store y[i1] = x[i1] - v0 }
#pragma once
#include <functional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "facula/schedule/invariants.h"
#include "facula/schedule/nest_spec.h"

namespace facula::schedule {

inline loop::Statement statement(loop::Statement::Kind k) {
  loop::Statement s;
  s.kind = k;
  return s;
}
// Calls f for each node of e that is not in `seen`, operands first.
void visit_once(loop::Expr e, std::unordered_set<const loop::Node*>& seen,
                const std::function<void(loop::Expr)>& f);

class SweepWriter : protected Invariants {
 protected:
  SweepWriter(const NestSpec& spec, const std::vector<BufferInfo>& buffers)
      : Invariants(buffers), spec_(spec) {}

  // Writes loops[k], loops[k + 1], ... around `payload`, and the reductions that its values need before the loops.
  void run(Block& block, const std::vector<Loop>& loops, size_t k, std::vector<loop::Statement> payload);
  // Computes the reductions in `roots` that depend only on variables and locals in scope, level by level; equal
  // domains share a sweep.
  void resolve(Block& block, const std::vector<Expr*>& roots);
  // Combines the partial results of a split reduction, in order.
  void merge(Block& block, const Merge& m);

  const NestSpec& spec_;
  std::vector<FlatStore>* stores_ = nullptr;  // stores of the row, while its reductions are resolved
  bool in_lanes_ = false;

 private:
  struct Scan {
    Expr node;
    int var;
  };
  // An expensive value of a row that is retained between sweeps.
  struct Spilled {
    FlatStore* store;
    Expr value, load;
  };
  void store_values(Block& block, std::vector<loop::Statement>& payload);
  std::vector<Scan> begin_scans(Block& block, const std::vector<Expr*>& roots, int var);
  void step_scans(Block& block, const std::vector<Scan>& scans, const std::vector<Expr*>& roots);
  int accumulator(Block& block, Expr fold);
  Expr with_locals(Expr e, const std::unordered_map<const loop::Node*, int>& first_locals);
  bool is_ready(Expr e);
  Expr position_of(Block& block, Expr r, int var);
  void spill(Block& block, std::vector<FlatStore>& stores, const std::vector<Loop>& loops,
             std::vector<loop::Statement>& payload, std::vector<Spilled>& spilled);
  int row_array(Block& block);

  std::unordered_map<const loop::Node*, Expr> positions_;  // by extremum: its position
  std::set<int> spilled_buffers_;                          // buffers that retain a value between sweeps
};

}  // namespace facula::schedule
