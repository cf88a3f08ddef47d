// What fusion asks of expressions: their reductions and scans (folds), and what the rest costs.
#pragma once
#include <unordered_map>
#include <vector>

#include "facula/loop/expr.h"

namespace facula::schedule::fusion {

// Bound variables of reductions are numbered from here, axes of clusters below.
constexpr int kFirstBound = 64;
// Operations that may be done more than once rather than stored: no transcendental.
constexpr double kCheap = 9;

inline loop::Expr integer(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }
inline bool is_one(SymInt s) { return SymInt::surely_equal(s, 1); }
inline bool is_fold(loop::Expr e) { return e->kind == loop::Kind::reduce || e->kind == loop::Kind::scan; }
bool contains(loop::Expr e, loop::Kind k);
// Is e made of reductions and scans alone, beside numbers?
bool is_of_folds(loop::Expr e);
// Operations to compute e, its reductions not counted: they are computed once a row.
double pointwise_cost(loop::Expr e);

// Equal reductions become equal expressions: bound variables are numbered from the innermost outwards.
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
