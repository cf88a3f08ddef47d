// Container modules for modules of any type. Other modules are in modules.h.
#pragma once
#include <algorithm>
#include <concepts>

#include "facula/base/error.h"
#include "facula/nn/modules.h"

namespace facula::nn {

template <class M>
concept Layer = std::derived_from<M, Module> && requires(const M& m, const Tensor& x) {
  { m(x) } -> std::convertible_to<Tensor>;
};

// Layers applied one after the other, named "0", "1", ... Write nn::Sequential{a, b}, with braces: C++ evaluates their
// contents from left to right, as Python does, but arguments in parentheses in any order, which changes the random
// numbers.
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

// The common part of dicts of modules and of parameters: names in insertion order, IndexError for a missing name. A copy
// is another handle to the same dict.
template <class T>
class DictOf : public Module {
 public:
  size_t size() const { return items_->size(); }
  bool empty() const { return items_->empty(); }
  bool contains(const std::string& key) const { return find(key) != items_->end(); }
  const T& operator[](const std::string& key) const {
    auto it = find(key);
    index_check(it != items_->end(), kind()) << "there is no key '" << key << "'";
    return it->second;
  }
  void insert(const std::string& key, T value) {  // replaces an existing one
    put(key, value);
    auto it = find(key);
    if (it == items_->end()) items_->emplace_back(key, std::move(value));
    else it->second = std::move(value);
  }
  void update(const Named<T>& items) {
    for (auto& [key, value] : items) insert(key, value);
  }
  T pop(const std::string& key) {
    T value = (*this)[key];
    remove(key);
    items_->erase(find(key));
    return value;
  }
  void clear() {
    while (!empty()) pop(items_->back().first);
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (auto& [key, value] : *items_) all.push_back(key);
    return all;
  }
  std::vector<T> values() const {
    std::vector<T> all;
    for (auto& [key, value] : *items_) all.push_back(value);
    return all;
  }
  auto begin() const { return items_->cbegin(); }  // pairs (name, value)
  auto end() const { return items_->cend(); }

 protected:
  using Module::Module;

 private:
  typename Named<T>::iterator find(const std::string& key) const {
    return std::find_if(items_->begin(), items_->end(), [&](auto& item) { return item.first == key; });
  }
  std::shared_ptr<Named<T>> items_ = std::make_shared<Named<T>>();
};

// Modules of one type by name: nn::ModuleDict<nn::Linear>({{"left", nn::Linear(3, 2)}, {"right", nn::Linear(3, 2)}})
template <std::derived_from<Module> M>
class ModuleDict : public DictOf<M> {
 public:
  ModuleDict() : DictOf<M>("ModuleDict") {}
  explicit ModuleDict(const Named<M>& modules) : ModuleDict() { this->update(modules); }
};

// Parameters by name. Floating-point ones require gradients.
class ParameterDict : public DictOf<Tensor> {
 public:
  ParameterDict() : DictOf("ParameterDict") {}
  explicit ParameterDict(const Named<Tensor>& parameters) : ParameterDict() { update(parameters); }
};

// A list of parameters. Floating-point ones require gradients.
class ParameterList : public Module {
 public:
  ParameterList() : Module("ParameterList") {}
  explicit ParameterList(const std::vector<Tensor>& parameters) : ParameterList() { extend(parameters); }
  void append(const Tensor& t) {
    put(std::to_string(size()), t);
    items_->push_back(t);
  }
  void extend(const std::vector<Tensor>& parameters) {
    for (auto& t : parameters) append(t);
  }
  void set(size_t k, const Tensor& t) {
    index_check(k < size(), "ParameterList") << "index " << k << " is out of range";
    put(std::to_string(k), t);
    (*items_)[k] = t;
  }
  size_t size() const { return items_->size(); }
  const Tensor& operator[](size_t k) const {
    index_check(k < size(), "ParameterList") << "index " << k << " is out of range";
    return (*items_)[k];
  }
  auto begin() const { return items_->cbegin(); }
  auto end() const { return items_->cend(); }

 private:
  std::shared_ptr<std::vector<Tensor>> items_ = std::make_shared<std::vector<Tensor>>();
};

}  // namespace facula::nn
