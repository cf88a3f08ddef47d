// One nest, from rows, domains and stores over flat offsets.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "facula/loop/nest.h"

namespace facula::schedule {

struct Loop {
  int var;
  loop::Expr extent;
};
struct FlatStore {
  int buffer, part = 0;
  loop::Expr value, offset;
  std::vector<Loop> sweep;  // loops beyond the rows, outermost first
};
// Components of partial results, combined in order along `loop`: locals `var`... hold the result.
struct Merge {
  loop::Monoid monoid;
  DType dtype;
  int var;
  Loop loop;
  std::vector<loop::Expr> parts;
};
struct NestSpec {
  std::string name;
  std::vector<Loop> rows;    // outermost first
  bool row_vector = false;   // the last row loop runs in lanes
  bool chunked = false;      // and a task is a piece of it
  std::vector<int> vectors;  // loops of sweeps that run in lanes
  int64_t kept_row = 0;  // elements of an array for values that a row of a sweep needs again; 0: none is made
  std::vector<Merge> merges;
  std::vector<FlatStore> first;  // stores that a row begins with
  std::vector<FlatStore> stores;
  std::vector<Loop> serial;  // between the rows: run in order, around the lanes (scatter)
  bool lists_places =
      false;  // where the innermost of these goes is computed in lanes beforehand, a block at a time
  // If given, a task is `unit` of the `span` elements that the result extends over: it goes through the whole domain, and
  // makes only the stores that fall there. With rows in lanes these are slices, of which each share has whole ones.
  loop::Expr unit, span;
  bool shares_slices() const { return unit.get() && row_vector; }
  // Tiles: a task is `task_rows` of the last whole row loop (in `row_chunks` pieces) by `chunk` lanes. What
  // lies along that loop in memory (`staged`: loads) is turned in a local array first.
  bool tiled = false;
  std::vector<loop::Expr> staged;
  int64_t tile = 0;
  loop::Expr row_chunks;
  loop::Expr tasks, task_rows, chunk, chunks, cost;  // rows in a task; lanes in a piece; pieces in a row
};
struct BufferInfo {
  DType dtype;
  bool unique;
  bool written;
};

// The statements of a task, whose number is variable `task_var`: rows, sweeps and stores, with whatever does not change
// in a loop computed before it. If tasks are places of no slices: of all tasks up to `end_var`.
loop::Block task_body(const NestSpec& spec, const std::vector<BufferInfo>& buffers, int task_var,
                      int end_var);

struct Finished {
  std::shared_ptr<const loop::Nest> nest;
  std::vector<int> buffers, numbers;  // its own ones by the numbers that they had
};
// Buffers, parameters, variables and locals are numbered in order of appearance; equal nests are shared.
Finished finish(const NestSpec& spec, const std::vector<BufferInfo>& buffers);

}  // namespace facula::schedule
