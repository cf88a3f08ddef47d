// Conversion between C++ types and the values that methods of classes take and return (io::Value). `Boxed<T>` has
//   type()     the type in schema syntax: "Dict(str, Tensor)"
//   fits(v)    true if the value can be converted to T; an int fits a float
//   get(v)     the T of a value that fits; put(t) is the inverse
// for Tensor, bool, integers, floats, std::string, DType, std::vector, std::optional, std::tuple, std::pair, std::map,
// std::unordered_map, Ref<T> of registered classes, and io::Value itself ("Any").
#pragma once
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "facula/io/value.h"

namespace facula::extend {

// Returns the name, "mine.Stack", of a C++ type; RuntimeError if no class_<T> was registered.
std::string class_name(const std::type_info& type);

template <class T>
struct Boxed {
  static_assert(sizeof(T) < 0,
                "methods of classes and functions of libraries take no such type (extend/boxed.h)");
};

template <>
struct Boxed<io::Value> {
  static std::string type() { return "Any"; }
  static bool fits(const io::Value&) { return true; }
  static io::Value get(const io::Value& v) { return v; }
  static io::Value put(io::Value v) { return v; }
};
template <>
struct Boxed<void> {
  static std::string type() { return "()"; }
};
template <>
struct Boxed<Tensor> {
  static std::string type() { return "Tensor"; }
  static bool fits(const io::Value& v) { return v.is_tensor(); }
  static Tensor get(const io::Value& v) { return v.tensor(); }
  static io::Value put(Tensor t) { return t.defined() ? io::Value(std::move(t)) : io::Value(); }
};
template <>
struct Boxed<bool> {
  static std::string type() { return "bool"; }
  static bool fits(const io::Value& v) { return v.kind() == io::Value::Kind::boolean; }
  static bool get(const io::Value& v) { return v.boolean(); }
  static io::Value put(bool b) { return b; }
};
template <std::integral T>
struct Boxed<T> {
  static std::string type() { return "int"; }
  static bool fits(const io::Value& v) {
    return v.kind() == io::Value::Kind::integer || v.kind() == io::Value::Kind::boolean;
  }
  static T get(const io::Value& v) {
    int64_t i = v.integer();
    value_check(std::in_range<T>(i), "") << i << " does not fit an int of " << sizeof(T) * 8 << " bits";
    return T(i);
  }
  static io::Value put(T i) { return int64_t(i); }
};
template <std::floating_point T>
struct Boxed<T> {
  static std::string type() { return "float"; }
  static bool fits(const io::Value& v) {
    return v.kind() == io::Value::Kind::real || Boxed<int64_t>::fits(v);
  }
  static T get(const io::Value& v) { return T(v.number()); }
  static io::Value put(T d) { return double(d); }
};
template <>
struct Boxed<std::string> {
  static std::string type() { return "str"; }
  static bool fits(const io::Value& v) { return v.kind() == io::Value::Kind::string; }
  static std::string get(const io::Value& v) { return v.string(); }
  static io::Value put(std::string s) { return s; }
};
template <>
struct Boxed<std::string_view> : Boxed<std::string> {};
template <>
struct Boxed<DType> {
  static std::string type() { return "ScalarType"; }
  static bool fits(const io::Value& v) { return v.kind() == io::Value::Kind::dtype; }
  static DType get(const io::Value& v) { return v.dtype(); }
  static io::Value put(DType d) { return d; }
};

inline bool is_sequence(const io::Value& v) {
  return v.kind() == io::Value::Kind::list || v.kind() == io::Value::Kind::tuple;
}
template <class T>
struct Boxed<std::vector<T>> {
  static std::string type() { return Boxed<T>::type() + "[]"; }
  static bool fits(const io::Value& v) {
    if (!is_sequence(v)) return false;
    for (auto& x : v.list())
      if (!Boxed<T>::fits(x)) return false;
    return true;
  }
  static std::vector<T> get(const io::Value& v) {
    std::vector<T> items;
    for (auto& x : v.list()) items.push_back(Boxed<T>::get(x));
    return items;
  }
  static io::Value put(const std::vector<T>& items) {
    io::List list;
    for (auto&& x : items) list.push_back(Boxed<T>::put(x));
    return list;
  }
};
template <class T>
struct Boxed<std::optional<T>> {
  static std::string type() { return Boxed<T>::type() + "?"; }
  static bool fits(const io::Value& v) { return v.is_none() || Boxed<T>::fits(v); }
  static std::optional<T> get(const io::Value& v) {
    if (v.is_none()) return std::nullopt;
    return Boxed<T>::get(v);
  }
  static io::Value put(const std::optional<T>& x) { return x ? Boxed<T>::put(*x) : io::Value(); }
};
template <class... T>
struct Boxed<std::tuple<T...>> {
  static std::string type() {
    std::string text;
    ((text += (text.empty() ? "" : ", ") + Boxed<T>::type()), ...);
    return "(" + text + ")";
  }
  static bool fits(const io::Value& v) {
    if (v.kind() != io::Value::Kind::tuple || v.size() != sizeof...(T)) return false;
    return [&]<size_t... K>(std::index_sequence<K...>) {
      return (Boxed<T>::fits(v.list()[K]) && ...);
    }(std::index_sequence_for<T...>());
  }
  static std::tuple<T...> get(const io::Value& v) {
    return [&]<size_t... K>(std::index_sequence<K...>) {
      return std::tuple<T...>{Boxed<T>::get(v.list()[K])...};
    }(std::index_sequence_for<T...>());
  }
  static io::Value put(const std::tuple<T...>& items) {
    return std::apply([](auto&... x) { return io::Value(io::Tuple{{Boxed<T>::put(x)...}}); }, items);
  }
};
template <class A, class B>
struct Boxed<std::pair<A, B>> {
  using Tuple = Boxed<std::tuple<A, B>>;
  static std::string type() { return Tuple::type(); }
  static bool fits(const io::Value& v) { return Tuple::fits(v); }
  static std::pair<A, B> get(const io::Value& v) {
    return std::make_from_tuple<std::pair<A, B>>(Tuple::get(v));
  }
  static io::Value put(const std::pair<A, B>& p) { return Tuple::put({p.first, p.second}); }
};
template <class Map>
struct BoxedMap {
  using K = typename Map::key_type;
  using T = typename Map::mapped_type;
  static std::string type() { return "Dict(" + Boxed<K>::type() + ", " + Boxed<T>::type() + ")"; }
  static bool fits(const io::Value& v) {
    if (!v.is_dict()) return false;
    for (auto& [key, x] : v.dict())
      if (!Boxed<K>::fits(key) || !Boxed<T>::fits(x)) return false;
    return true;
  }
  static Map get(const io::Value& v) {
    Map map;
    for (auto& [key, x] : v.dict()) map.emplace(Boxed<K>::get(key), Boxed<T>::get(x));
    return map;
  }
  static io::Value put(const Map& map) {
    io::Dict dict;
    for (auto& [key, x] : map) dict.set(Boxed<K>::put(key), Boxed<T>::put(x));
    return dict;
  }
};
template <class K, class T>
struct Boxed<std::map<K, T>> : BoxedMap<std::map<K, T>> {};
template <class K, class T>
struct Boxed<std::unordered_map<K, T>> : BoxedMap<std::unordered_map<K, T>> {};

template <std::derived_from<CustomClassHolder> T>
struct Boxed<Ref<T>> {
  static std::string type() { return "__torch__.torch.classes." + class_name(typeid(T)); }
  static bool fits(const io::Value& v) {
    auto* o = v.object<io::CustomObject>();
    return o && dynamic_cast<T*>(o->object.get());
  }
  static Ref<T> get(const io::Value& v) { return Ref<T>::share(dynamic_cast<T*>(v.custom_object().get())); }
  static io::Value put(Ref<T> o) { return o ? io::Value(Ref<CustomClassHolder>(std::move(o))) : io::Value(); }
};

}  // namespace facula::extend
