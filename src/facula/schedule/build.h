// Builds the nests of an analysis for given decisions, together with a recipe for each parameter: a function from the
// numbers of a call to the parameter's value.
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
  std::vector<int> numbers;  // by parameter of the nest: the number of its recipe
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

// `indexed`: the launches that another process built for the same group and decisions, if the index has them.
Built build(const std::string& name, const Analysis& a, const Decisions& d,
            std::vector<IndexedNest> indexed = {});

}  // namespace facula::schedule
