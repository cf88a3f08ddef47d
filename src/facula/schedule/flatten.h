// Flattener: the expressions of an analysis as a nest computes them. Loads get flat offsets, reductions run over merged
// loops, and extents, sizes and strides become parameters, each with a recipe (build.h).
//   example: load x[i, j] of a matrix whose rows are adjacent in memory  ->  load x[i * p0 + j], p0: "stride 0:0,"
#pragma once
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "facula/schedule/build.h"
#include "facula/schedule/nest_spec.h"
#include "facula/schedule/statements.h"

namespace facula::schedule {

inline int64_t ceil_div(int64_t a, int64_t b) { return b ? (a + b - 1) / b : 0; }
std::string text(const std::vector<Merged>& loops);

class Flattener {
 public:
  using Count = std::function<int64_t(const Numbers&)>;

  Flattener(const Analysis& a, const Decisions& d);

 protected:
  loop::Expr param(std::string key, Count value);
  loop::Expr extent(const Merged& m);
  loop::Expr stride(int buffer, const std::vector<size_t>& dims);
  // The stride of access number k along a loop.
  loop::Expr coefficient(size_t k, int var);
  loop::Expr offset(size_t k);
  // True for the variable that stands for a merged loop, and for the bound variables of nested reductions.
  bool is_loop(int v);
  loop::Expr flat(loop::Expr e);
  // The nest's expression for a node that flat() has translated.
  loop::Expr flattened(const loop::Node* node) const { return flat_.at(node); }

  // The number of iterations of these loops.
  static Count counter(const std::vector<Merged>& loops);
  Count widest_domain();
  std::vector<Loop> loops_of(const std::vector<Merged>& merged);
  // True if e depends only on the row.
  bool of_rows(loop::Expr e);
  int new_var() { return next_var_++; }
  const std::vector<Recipe>& recipes() const { return recipes_; }

  const Analysis& a_;
  const Decisions& d_;

 private:
  std::vector<Recipe> recipes_;
  std::map<std::string, int> numbers_;                // by key: the number of a recipe
  std::unordered_map<const loop::Node*, size_t> at_;  // the numbers of accesses
  std::unordered_map<const loop::Node*, loop::Expr> flat_;
  std::vector<size_t> computed_at_;  // by access: the number of its first computed index
  int next_var_;
};

}  // namespace facula::schedule
