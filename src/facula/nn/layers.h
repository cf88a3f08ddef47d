// Modules that hold modules of any type. The others are in modules.h.
#pragma once
#include <concepts>

#include "facula/nn/modules.h"

namespace facula::nn {

template <class M>
concept Layer = std::derived_from<M, Module> && requires(const M& m, const Tensor& x) {
  { m(x) } -> std::convertible_to<Tensor>;
};

// Layers applied one after the other, named "0", "1", ... Write nn::Sequential{a, b}, with braces: C++ makes
// what stands in them from left to right, as Python does, and what stands in parentheses in any order, which
// changes the random numbers.
class Sequential : public Module {
 public:
  template <Layer... M>
    requires(!(sizeof...(M) == 1 && (std::same_as<M, Sequential> && ...)))
  explicit Sequential(M... layers) : Sequential(Empty()) {
    (push_back(std::move(layers)), ...);
  }
  template <Layer M>
  void push_back(M layer) {
    add(std::to_string(child_count()), layer);
    calls_->push_back([layer = std::move(layer)](const Tensor& x) -> Tensor { return layer(x); });
  }
  size_t size() const { return calls_->size(); }
  Tensor operator()(const Tensor& x) const { return apply_all(*calls_, x); }

 private:
  using Calls = std::vector<std::function<Tensor(const Tensor&)>>;
  struct Empty {};
  explicit Sequential(Empty) : Module("Sequential") {
    called_by_modules([calls = calls_](const Tensor& x) { return apply_all(*calls, x); });
  }
  static Tensor apply_all(const Calls& calls, const Tensor& x) {
    Tensor y = x;
    for (auto& call : calls) y = call(y);
    return y;
  }
  std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
};

// A list of modules of one type: for (auto& block : blocks) x = block(x);
template <std::derived_from<Module> M>
class ModuleList : public Module {
 public:
  ModuleList() : Module("ModuleList") {}
  explicit ModuleList(std::vector<M> modules) : ModuleList() {
    for (auto& m : modules) push_back(std::move(m));
  }
  void push_back(M m) {
    add(std::to_string(child_count()), m);
    items_->push_back(std::move(m));
  }
  size_t size() const { return items_->size(); }
  const M& operator[](size_t k) const { return items_->at(k); }
  auto begin() const { return items_->cbegin(); }
  auto end() const { return items_->cend(); }

 private:
  std::shared_ptr<std::vector<M>> items_ = std::make_shared<std::vector<M>>();
};

}  // namespace facula::nn
