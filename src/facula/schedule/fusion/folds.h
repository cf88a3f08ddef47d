// Properties of expressions that fusion asks for: their folds (reductions and scans), and the cost of the rest.
#pragma once
#include <unordered_map>
#include <vector>

#include "facula/loop/expr.h"

namespace facula::schedule::fusion {

// Bound variables of reductions are numbered from here; smaller numbers are axes of clusters.
constexpr int kFirstBound = 64;
// The most operations that are recomputed rather than stored; a transcendental function costs more.
constexpr double kCheap = 9;

inline loop::Expr integer(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }
inline bool is_one(SymInt s) { return SymInt::surely_equal(s, 1); }
inline bool is_fold(loop::Expr e) { return e->kind == loop::Kind::reduce || e->kind == loop::Kind::scan; }
bool contains(loop::Expr e, loop::Kind k);
// True if e consists of folds and numbers only.
bool is_of_folds(loop::Expr e);
// Operations that compute e. Its reductions do not count, since they are computed once per row.
double pointwise_cost(loop::Expr e);

// Numbers bound variables from the innermost outwards, so that equal reductions become the same expression.
class Canonical {
 public:
  loop::Expr operator()(loop::Expr e);

 private:
  int height(loop::Expr e);
  loop::Expr fold(loop::Expr e);

  std::unordered_map<const loop::Node*, loop::Expr> done_;
  std::unordered_map<const loop::Node*, int> heights_;
};

}  // namespace facula::schedule::fusion
