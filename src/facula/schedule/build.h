// The nests of an analysis under decisions, with the recipe of every parameter: how a call's numbers give its
// value.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "facula/loop/lazy_nest.h"
#include "facula/schedule/decide.h"
#include "facula/schedule/nest_index.h"

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
            std::vector<IndexedNest> known = {});

}  // namespace facula::schedule
