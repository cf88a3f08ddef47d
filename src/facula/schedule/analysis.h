// Describes what a group computes, independently of layouts: its variables, its reduction domains, and every memory
// access. Axes of extent one are removed; complex values are split into pairs of real ones; reductions over equal
// domains share their variables, also with a store that runs along the same axes after them.
//   example:  softmax(x) over the last axis -> row variable 0; one domain {1}, shared by a max and a sum; a load of x
//             and a store, both with dims {0, 1}
//   requires: outputs that run along every row of the group (see `parts`)
//   cost:     linear in the nodes of the group's expressions
#pragma once
#include <vector>

#include "facula/loop/monoid.h"
#include "facula/schedule/group.h"

namespace facula::schedule {

struct Variable {
  loop::Expr extent;  // over sizes; may depend on variables (then `ragged`)
  int domain = -1;    // -1: a row variable; kNested: belongs to a reduction inside another reduction's domain
  bool ragged = false;
  bool plain = true;  // only ever used as the whole index of a dimension
};
inline constexpr int kNested = -2;

// A load, a store, or the row-major position in the group's space.
struct Access {
  static constexpr int kNothing = -1, kComputed = -2;
  enum class Kind : uint8_t { load, store, position } kind;
  int buffer = -1;  // number of the buffer: inputs first, then outputs
  // By dimension: the variable that indexes it; kNothing: index 0; kComputed: see `indices`.
  std::vector<int> dims;
  std::vector<loop::Expr> indices;            // the index expressions of the kComputed dimensions
  std::vector<std::vector<int>> computed_of;  // by kComputed dimension: the free variables of its index
  loop::Expr node;                            // the load or position
  int bytes = 0;                              // per element
  bool inner = false;                         // runs along variables that are not rows
};

struct Output {
  int buffer, part = 0;
  loop::Expr value;
  std::vector<int> axes;           // by dimension: a variable; kNothing: extent 1; kComputed: see `target`
  std::vector<loop::Expr> target;  // scatter only: the index in each dimension
  int access = -1;
};

struct ReductionDomain {
  std::vector<int> vars;
  bool ordered = false;  // the order of the elements matters (argmax)
};

struct Analysis {
  int inputs = 0, axes = 0;
  std::vector<DType> dtypes;   // inputs first, then outputs
  std::vector<Variable> vars;  // the group's axes first
  std::vector<int> rows;       // free variables of the reductions; all variables if there are no reductions
  std::vector<ReductionDomain> domains;
  std::vector<Output> outputs;
  std::vector<Access> accesses;
  bool reduces = false, scatter = false;
  int base = -1;          // the input that a scatter updates; -1: it updates zeros
  int scan_axis = -1;     // the variable along which scans run
  double operations = 0;  // estimated scalar operations for one element of the full space
  // By variable: the constant by which all indices along this row variable are divided (quotient or remainder), or 1.
  // A pool with stride 2, for example, reads the same window for 2 neighbouring elements.
  std::vector<int64_t> periods;
};

// Partitions the outputs (by number) into sets that can share nests: outputs that run along all rows of the
// reductions form one set, the others are grouped by the axes they run along.
std::vector<std::vector<int>> parts(const Group& g);
Analysis analyse(const Group& g, const std::vector<int>& outputs);
// Analyses the loop over a scatter's domain: axes along which no two points write to the same element become rows;
// all other axes form the only domain.
Analysis analyse_scatter(const Group& g);

// Free variables of e, sorted.
std::vector<int> free_vars(loop::Expr e);
// Estimates the scalar operations that compute e once; the body of a reduction counts once.
double operation_count(std::span<const loop::Expr> e);

}  // namespace facula::schedule
