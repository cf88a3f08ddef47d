// Arguments and results of modules that may be of several types.
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

// A number, a list of numbers in braces, a string, a dtype, a module or a function of tensors: what PyTorch
// takes under this name. nullopt is None.
class Argument : public io::Value {
 public:
  Argument() = default;  // not given: the module's own default
  Argument(io::Value v) : io::Value(std::move(v)), given_(true) {}
  Argument(std::initializer_list<int64_t> l) : Argument(tuple(l)) {}
  Argument(const std::vector<int64_t>& l) : Argument(tuple(l)) {}
  Argument(const std::vector<double>& l) : Argument(tuple(l)) {}
  Argument(const Module& m);
  template <class T>
    requires(std::constructible_from<io::Value, T> && !std::derived_from<std::remove_cvref_t<T>, io::Value> &&
             !std::derived_from<std::remove_cvref_t<T>, Module>)
  Argument(T&& v) : io::Value(std::forward<T>(v)), given_(true) {}
  template <class T>
  Argument(const std::optional<T>& v) : io::Value(v ? io::Value(*v) : io::Value()), given_(true) {}
  template <class F>
    requires(std::invocable<F, const Tensor&> && !std::derived_from<F, Module>)
  Argument(F f) : Argument(function_of([f](std::span<const Tensor> x) { return Tensor(f(x[0])); }, 1)) {}
  template <class F>
    requires(std::invocable<F, const Tensor&, const Tensor&> && !std::derived_from<F, Module>)
  Argument(F f)
      : Argument(function_of([f](std::span<const Tensor> x) { return Tensor(f(x[0], x[1])); }, 2)) {}
  bool is_given() const { return given_; }

 private:
  template <class List>
  static io::Value tuple(const List& l) {
    io::Tuple t;
    for (auto n : l) t.items.push_back(n);
    return t;
  }
  static io::Value function_of(std::function<Tensor(std::span<const Tensor>)> f, size_t arity);
  bool given_ = false;
};

// The first member of options, so that braces without names are no options.
class ByName {
 public:
  constexpr ByName() = default;
};

// A tensor, or by index several: Tensor y = pool(x); auto y = pool(x)[0], at = pool(x)[1].
class Output : public io::Value {
 public:
  explicit Output(io::Value v) : io::Value(std::move(v)) {}
  operator Tensor() const { return tensor(); }  // TypeError if there are several
  Output operator[](size_t k) const { return Output(io::Value::operator[](int64_t(k))); }
};

}  // namespace facula::nn
