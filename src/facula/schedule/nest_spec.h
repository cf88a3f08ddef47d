// A specification of one nest (rows, reduction domains, stores at flat offsets), and its translation into statements.
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
  std::vector<Loop> sweep;  // loops inside of the rows, outermost first
};
// Combines the components of partial results, in order, along `loop`; locals `var`... hold the result.
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
  bool chunked = false;      // a task is a piece of that loop
  std::vector<int> vectors;  // loops of sweeps that run in lanes
  // Elements of a local array that retains values of a row between sweeps; 0: no array.
  int64_t row_array_elements = 0;
  std::vector<Merge> merges;
  std::vector<FlatStore> first;  // stores at the beginning of a row
  std::vector<FlatStore> stores;
  std::vector<Loop> serial;   // scatter: loops inside of the rows that run in order, around the lanes
  bool lists_places = false;  // lanes precompute the places of the innermost serial loop, a block at a time
  // If set, a task owns `unit` of the `span` elements of the result: it runs the whole domain but performs only the
  // stores to its own elements. If rows run in lanes, these are slices, and a task owns whole slices.
  loop::Expr unit, span;
  bool shares_slices() const { return unit.get() && row_vector; }
  // Tiles: a task is `task_rows` iterations of the last row loop that is not in lanes (in `row_chunks` pieces) by
  // `chunk` lanes. The loads in `staged`, which are contiguous along that loop, are transposed into a local array
  // first.
  bool tiled = false;
  std::vector<loop::Expr> staged;
  int64_t tile = 0;
  loop::Expr row_chunks;
  loop::Expr tasks, task_rows, chunk, chunks,
      cost;  // rows of a task; lanes of a piece; pieces of a row; operations of a task
};
struct BufferInfo {
  DType dtype;
  bool unique;
  bool written;
};

// The statements of task `task_var`: rows, sweeps and stores, with loop invariants moved out of loops. If a task owns
// places (not slices), the statements run tasks [task_var, end_var) together.
loop::Block task_body(const NestSpec& spec, const std::vector<BufferInfo>& buffers, int task_var,
                      int end_var);

struct Finished {
  std::shared_ptr<const loop::Nest> nest;
  std::vector<int> buffers, numbers;  // by new number: the former number
};
// Builds the nest. Buffers, parameters, variables and locals are numbered in order of appearance; equal nests are
// shared.
Finished finish(const NestSpec& spec, const std::vector<BufferInfo>& buffers);

}  // namespace facula::schedule
