// Arguments and results of modules that can have several types.
#pragma once
#include <concepts>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "facula/io/value.h"

namespace facula::nn {

class Module;

// A number, a list of numbers in braces, a string, a dtype, a module or a function of tensors: the types that PyTorch
// accepts for this argument. nullopt is None.
class Argument : public io::Value {
 public:
  Argument() = default;  // absent: the module's default
  Argument(io::Value v) : io::Value(std::move(v)), present_(true) {}
  Argument(std::initializer_list<int64_t> l) : Argument(tuple(l)) {}
  Argument(const std::vector<int64_t>& l) : Argument(tuple(l)) {}
  Argument(const std::vector<double>& l) : Argument(tuple(l)) {}
  Argument(const Module& m);
  template <class T>
    requires(std::constructible_from<io::Value, T> && !std::derived_from<std::remove_cvref_t<T>, io::Value> &&
             !std::derived_from<std::remove_cvref_t<T>, Module>)
  Argument(T&& v) : io::Value(std::forward<T>(v)), present_(true) {}
  template <class T>
  Argument(const std::optional<T>& v) : io::Value(v ? io::Value(*v) : io::Value()), present_(true) {}
  template <class F>
    requires(std::invocable<F, const Tensor&> && !std::derived_from<F, Module>)
  Argument(F f) : Argument(function_of([f](std::span<const Tensor> x) { return Tensor(f(x[0])); }, 1)) {}
  template <class F>
    requires(std::invocable<F, const Tensor&, const Tensor&> && !std::derived_from<F, Module>)
  Argument(F f)
      : Argument(function_of([f](std::span<const Tensor> x) { return Tensor(f(x[0], x[1])); }, 2)) {}
  bool is_given() const { return present_; }

 private:
  template <class List>
  static io::Value tuple(const List& l) {
    io::Tuple t;
    for (auto n : l) t.items.push_back(n);
    return t;
  }
  static io::Value function_of(std::function<Tensor(std::span<const Tensor>)> f, size_t arity);
  bool present_ = false;
};

// The first member of options structs, so that braces without names do not match them.
class ByName {
 public:
  constexpr ByName() = default;
};

// A tensor, or several by index: Tensor y = pool(x); auto y = pool(x)[0], at = pool(x)[1].
class Output : public io::Value {
 public:
  explicit Output(io::Value v) : io::Value(std::move(v)) {}
  operator Tensor() const { return tensor(); }  // TypeError if there are several
  Output operator[](size_t k) const { return Output(io::Value::operator[](int64_t(k))); }
};

}  // namespace facula::nn
