// Settings and results of modules and functions between C++ types and io::Value.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "facula/nn/argument.h"
#include "facula/nn/by_name.h"
#include "torch/ivalue.h"
#include "torch/types.h"

namespace torch::detail {

using facula::io::Value;

template <class T>
Value value_of(const T& x);
template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
concept List = requires(const T& l) {
  l.begin() != l.end();
  l.size();
} && !std::constructible_from<std::string_view, T>;
template <class T>
concept HoldsModule = requires(const T& m) {
  { m->handle() } -> std::convertible_to<const facula::nn::Module&>;
};
template <class T>
concept Settable = std::constructible_from<Value, T> || std::same_as<T, Tensor> || std::same_as<T, Scalar> ||
                   IsTuple<T>::value || IsOptional<T>::value || List<T> || HoldsModule<T> ||
                   std::convertible_to<T, ArrayRef<int64_t>> || std::invocable<const T&, Tensor> ||
                   std::invocable<const T&, Tensor, Tensor>;

// None, a number, a text, a tensor, a module, a function of tensors, or a list or tuple of such. An undefined tensor is None.
template <class T>
Value value_of(const T& x) {
  if constexpr (std::derived_from<T, Value>) return x;
  else if constexpr (std::derived_from<T, facula::Tensor>)
    return x.defined() ? Value(facula::Tensor(x)) : Value();
  else if constexpr (std::derived_from<T, facula::Scalar>) return IValue(Scalar(x));
  else if constexpr (HoldsModule<T>) return x ? facula::nn::module_value(x->handle()) : Value();
  else if constexpr (IsOptional<T>::value) return x ? value_of(*x) : Value();
  else if constexpr (IsTuple<T>::value)
    return std::apply([](const auto&... items) { return Value(facula::io::Tuple{{value_of(items)...}}); },
                      std::tuple(x));
  else if constexpr (std::convertible_to<T, std::string_view>) return Value(std::string_view(x));
  else if constexpr (std::invocable<const T&, Tensor>)
    return facula::nn::Argument([x](const facula::Tensor& t) -> facula::Tensor { return x(Tensor(t)); });
  else if constexpr (std::invocable<const T&, Tensor, Tensor>)
    return facula::nn::Argument([x](const facula::Tensor& a, const facula::Tensor& b) -> facula::Tensor {
      return x(Tensor(a), Tensor(b));
    });
  else if constexpr (std::constructible_from<Value, T>) return Value(x);
  else if constexpr (List<T>) {
    facula::io::Tuple items;
    for (auto&& item : x) items.items.push_back(value_of(item));
    return items;
  } else if constexpr (std::convertible_to<T, ArrayRef<int64_t>>) return value_of(ArrayRef<int64_t>(x));
}

// A setting or input of any type that modules take; one that is not given leaves the module's default.
class Given {
 public:
  Given() = default;
  Given(std::nullopt_t) : value_(Value()) {}
  Given(std::initializer_list<int64_t> l) : value_(value_of(ArrayRef<int64_t>(l))) {}
  template <class T>
    requires(Settable<std::decay_t<T>> && !std::same_as<std::decay_t<T>, Given>)
  Given(T&& x) : value_(value_of<std::decay_t<T>>(x)) {}
  const std::optional<Value>& get() const { return value_; }

 private:
  std::optional<Value> value_;
};
// A text, or one of the words.
class Text {
 public:
  Text(const char* s) : text_(s) {}
  Text(std::string s) : text_(std::move(s)) {}
  Text(std::string_view s) : text_(s) {}
  Text(Word w) : text_(w.text) {}
  operator const std::string&() const { return text_; }
  const std::string& get() const { return text_; }

 private:
  std::string text_;
};

// A value as a C++ type.
template <class T>
T from_value(const Value& v) {
  if constexpr (std::same_as<T, Tensor>) return IValue(v).toTensor();
  else if constexpr (std::same_as<T, bool>) return v.boolean();
  else if constexpr (std::integral<T>) return T(v.integer());
  else if constexpr (std::floating_point<T>) return T(v.number());
  else if constexpr (std::same_as<T, std::string>) return v.string();
  else if constexpr (IsOptional<T>::value) {
    if (v.is_none()) return std::nullopt;
    return from_value<typename T::value_type>(v);
  } else if constexpr (IsTuple<T>::value) {
    return [&]<size_t... K>(std::index_sequence<K...>) {
      return T{from_value<std::tuple_element_t<K, T>>(v.list().at(K))...};
    }(std::make_index_sequence<std::tuple_size_v<T>>());
  } else return T(v);
}

using TwoNumbers = std::tuple<double, double>;
using ThreeNumbers = std::tuple<double, double, double>;
// The first of several results, or the only one.
inline Tensor first_of(const Value& v) { return v.is_tensor() ? v.tensor() : v[0].tensor(); }

// Named arguments; absent ones are left out.
class Arguments {
 public:
  template <class T>
  Arguments&& with(const char* name, const T& x) && {
    if constexpr (std::same_as<T, Given>) {
      if (x.get()) dict_.set(name, *x.get());
    } else if constexpr (std::same_as<T, Text>) dict_.set(name, x.get());
    else dict_.set(name, value_of(x));
    return std::move(*this);
  }
  Arguments&& with(const facula::io::Dict& more) && {
    for (auto& [name, v] : more) dict_.set(name, v);
    return std::move(*this);
  }
  // Renames an argument if it is present.
  Arguments&& renamed(const char* from, const char* to) && {
    if (auto* entry = dict_.find(from)) {
      dict_.set(to, Value(*entry));
      dict_.erase(from);
    }
    return std::move(*this);
  }
  const facula::io::Dict& dict() const { return dict_; }

 private:
  facula::io::Dict dict_;
};

// Settings by name, for classes whose setters FACULA_TORCH_OPTION writes.
class Options {
 public:
  const facula::io::Dict& settings() const { return settings_; }

 protected:
  template <class T>
  void set(const char* name, const T& x) {
    settings_ = Arguments().with(settings_).with(name, x).dict();
  }
  template <class T>
  T get(const char* name, T otherwise) const {
    auto* entry = settings_.find(name);
    return entry ? from_value<T>(*entry) : otherwise;
  }

 private:
  facula::io::Dict settings_;
};
// o.name(value) sets it and gives o; o.name() is its value.
#define FACULA_TORCH_OPTION(Class, Parameter, Type, name, otherwise) \
  Class& name(Parameter value) {                                     \
    this->set(#name, value);                                         \
    return *this;                                                    \
  }                                                                  \
  Type name() const { return this->template get<Type>(#name, otherwise); }

}  // namespace torch::detail
