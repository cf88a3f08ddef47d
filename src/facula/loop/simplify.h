// Simplification at construction, and the primitives that it shares with the constructors. Every identity keeps the
// value exactly: for floating point that excludes x * 0, x + 0 (of -0) and reassociation; integers wrap and form a
// ring.
//   example: add(mul(i0, 4), add(1, mul(i0, 2)))  ->  add(mul(i0, 6), 1)
//
// Integer sums have a normal form, ((t0 + t1) + ...) + constant with terms t or t * coefficient, so that equal index
// expressions are equal words and an affine analysis sees only add and mul. Index arithmetic (over loop variables,
// sizes, parameters and locals) is assumed not to overflow when a quotient is simplified.
#pragma once
#include "facula/loop/expr.h"

namespace facula::loop {

Expr intern(Node n);                                // the one node equal to n (expr.cpp)
DType call_type(Fn f, std::span<const Expr> args);  // checks arity and dtypes (expr.cpp)
Expr raw_call(Fn f, std::vector<Expr> args);        // a call without simplification

Expr simplify_call(Fn f, std::vector<Expr> args);
Expr simplify_cast(Expr x, DType to);
Expr simplify_select(Expr c, Expr a, Expr b);

inline bool is_constant(Expr x) { return x->kind == Kind::constant; }
inline bool is_call(Expr x, Fn f) { return x->kind == Kind::call && x->fn == f; }
bool is_value(Expr x, double v);  // the constant v; 0 and -0 differ

// An integer expression as constant + sum of coefficient * term.
struct Linear {
  struct Term {
    Expr x;
    int64_t coefficient;
  };
  std::vector<Term> terms;
  int64_t constant = 0;
  int visited = 0;
};
// False if there are too many terms to be worth treating.
bool linear(Expr x, Linear& to, int64_t scale = 1);
Expr from_linear(const Linear& l, DType d);

}  // namespace facula::loop
