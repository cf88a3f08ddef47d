// vmap for C++ programs: a function of one example as a function of a batch of them.
//   auto products = vmap([](const Tensor& a, const Tensor& b) { return dot(a, b); });
//   Tensor y = products(x, w);                     // over dimension 0 of both
//   vmap(f, {0, std::nullopt}, 1)(x, w);           // w is the same for all; the batch is dimension 1 of the result
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "facula/batch/randomness.h"
#include "facula/tensor/tensor.h"

namespace facula {

using batch::Randomness;
using BatchDims = std::vector<std::optional<int>>;  // by argument; nullopt: the same for all

namespace batch {

// Enters a level for the arguments' batch, for as long as it lives. `in_dims` empty: dimension 0 of all. ValueError if
// the dimensions do not fit.
class Mapping {
 public:
  Mapping(std::span<const Tensor> inputs, BatchDims in_dims, Randomness randomness);
  ~Mapping();
  const Tensor& operator[](size_t k) const { return inputs_[k]; }
  Tensor leave(const Tensor& t, int out_dim) const;

 private:
  struct Entered;  // the level, on for the thread
  std::unique_ptr<Entered> entered_;
  std::vector<Tensor> inputs_;
};

}  // namespace batch

// `f` takes tensors and gives one, or a vector of them, which have the batch as dimension `out_dim`.
template <class F>
auto vmap(F f, BatchDims in_dims = {}, int out_dim = 0, Randomness randomness = Randomness::error) {
  return [=](const auto&... inputs) {
    std::vector<Tensor> given{inputs...};
    batch::Mapping m(given, in_dims, randomness);
    auto results = [&]<size_t... K>(std::index_sequence<K...>) {
      return f(m[K]...);
    }(std::make_index_sequence<sizeof...(inputs)>());
    if constexpr (std::is_same_v<decltype(results), Tensor>) {
      return m.leave(results, out_dim);
    } else {
      for (Tensor& t : results) t = m.leave(t, out_dim);
      return results;
    }
  };
}

}  // namespace facula
