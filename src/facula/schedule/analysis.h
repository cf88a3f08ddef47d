// What a group does, free of layouts: its variables, the domains its reductions run over, and every place in
// memory it touches. Axes of extent one are gone; complex values are pairs of real ones; reductions over
// equal domains share their variables, also with the axes that a store runs along after them.
//   requires: outputs that run along every row of the group (see `parts`)
#pragma once
#include <vector>

#include "facula/loop/monoid.h"
#include "facula/schedule/group.h"

namespace facula::schedule {

struct Variable {
  loop::Expr extent;  // over sizes; may depend on variables (then `ragged`)
  int domain = -1;    // -1: a row variable; kNested: of a reduction inside another one's domain
  bool ragged = false;
  bool plain = true;  // used only as the whole index of some dimension
};
inline constexpr int kNested = -2;

// A load, a store, or the row-major position in the group's space.
struct Access {
  static constexpr int kNothing = -1, kComputed = -2;
  enum class Kind : uint8_t { load, store, position } kind;
  int buffer = -1;                  // inputs, then outputs
  std::vector<int> dims;            // by dimension: the variable that is its index; kNothing: 0; kComputed
  std::vector<loop::Expr> indices;  // of computed dimensions
  std::vector<std::vector<int>> computed_of;  // likewise: their free variables
  loop::Expr node;                            // the load or position
  int bytes = 0;                              // per element
  bool inner = false;                         // runs along variables that are no rows
};

struct Output {
  int buffer, part = 0;
  loop::Expr value;
  std::vector<int> axes;  // variables, kNothing where the dimension has extent 1, kComputed: see target
  std::vector<loop::Expr> target;  // of a scatter: the index in each dimension
  int access = -1;
};

struct ReductionDomain {
  std::vector<int> vars;
  bool ordered = false;  // the order of the elements matters (argmax)
};

struct Analysis {
  int inputs = 0, axes = 0;
  std::vector<DType> dtypes;   // of inputs, then outputs
  std::vector<Variable> vars;  // the group's axes first
  std::vector<int> rows;       // variables free in the reductions; all of them if there are none
  std::vector<ReductionDomain> domains;
  std::vector<Output> outputs;
  std::vector<Access> accesses;
  bool reduces = false, scatter = false;
  int base = -1;          // the input that a scatter changes; -1: zeros
  int scan_axis = -1;     // the variable that scans run along
  double operations = 0;  // scalar operations for one element of the full space, roughly
  // By variable: the divisor of the quotients and remainders that indices along a row go through, if there is one; else 1.
  // Pools with a stride ask the same windows for so many neighbours.
  std::vector<int64_t> periods;
};

// Outputs that can share nests, by number: those that run along all rows of the reductions together, the
// others by the axes they run along.
std::vector<std::vector<int>> parts(const Group& g);
Analysis analyse(const Group& g, const std::vector<int>& outputs);
// The loop over a scatter's domain: rows are axes along which points never meet, the only domain holds the
// others.
Analysis analyse_scatter(const Group& g);

// Free variables of e, sorted.
std::vector<int> free_vars(loop::Expr e);
// Scalar operations to compute e once, roughly; reductions count their body once.
double operation_count(std::span<const loop::Expr> e);

}  // namespace facula::schedule
