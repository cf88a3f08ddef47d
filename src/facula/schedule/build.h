// The nests of an analysis under decisions, with the recipe of every parameter: how a call's numbers give its
// value.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "facula/loop/lazy_nest.h"
#include "facula/schedule/decide.h"
#include "facula/schedule/known_nests.h"

namespace facula::schedule {

struct Recipe {
  std::string key;  // equal keys mean equal values
  std::function<int64_t(const Numbers&)> value;
};
struct BuiltLaunch {
  std::shared_ptr<const loop::LazyNest> nest;
  std::vector<int> buffers;  // inputs, outputs, temporaries
  std::vector<int> numbers;  // of the recipes, in the order in which the nest takes them
  std::vector<Recipe> params;
};
struct Built {
  std::vector<BuiltLaunch> launches;
  struct Scratch {
    DType dtype;
    std::function<int64_t(const Numbers&)> numel;
  };
  std::vector<Scratch> temporaries;
};

// `known`: what the launches became elsewhere, if that is known.
Built build(const std::string& name, const Analysis& a, const Decisions& d,
            std::vector<KnownNest> known = {});

// One nest, from rows, domains and stores over flat offsets.
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
  std::vector<Merge> merges;
  std::vector<FlatStore> stores;
  std::vector<Loop> serial;  // between the rows: run in order, around the lanes (scatter)
  // Tiles: a task is `task_rows` of the last whole row loop (in `row_chunks` pieces) by `chunk` lanes. What
  // lies along that loop in memory (`staged`: loads) is turned in a local array first.
  bool tiled = false;
  std::vector<loop::Expr> staged;
  int64_t tile = 0;
  loop::Expr row_chunks;
  loop::Expr tasks, task_rows, chunk, chunks, cost;  // rows in a task; lanes in a piece; pieces in a row
};
// Renumbers buffers, parameters, variables and locals in order of appearance, and shares equal nests.
struct BufferInfo {
  DType dtype;
  bool unique;
  bool written;
};
struct Finished {
  std::shared_ptr<const loop::Nest> nest;
  std::vector<int> buffers, numbers;  // its own ones by the numbers that they had
};
Finished finish(const NestSpec& spec, const std::vector<BufferInfo>& buffers);

// Variance as two sums, and logsumexp as a maximum and a sum.
loop::Expr in_two_sweeps(loop::Expr e);
// Mean, sum of squared deviations and count of a float32 welford fold, by two sweeps in its dtype, as float64:
// chunks' means lie so close together that a rounded one would add to their variance.
std::vector<loop::Expr> wide_moments(loop::Expr fold);

}  // namespace facula::schedule
