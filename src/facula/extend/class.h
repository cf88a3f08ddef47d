// C++ classes that Python programs can instantiate, as facula.classes.mine.Stack(...):
//
//   struct Stack : CustomClassHolder {
//     explicit Stack(std::vector<std::string> items) : items(std::move(items)) {}
//     void push(const std::string& x) { items.push_back(x); }
//     std::vector<std::string> items;
//   };
//   FACULA_LIBRARY(mine, m) {
//     m.class_<Stack>("Stack")
//         .def(init<std::vector<std::string>>(), "", {arg("items") = io::List{}})
//         .def("push", &Stack::push)
//         .def("merged", [](const Ref<Stack>& self, const Ref<Stack>& other) { ... })
//         .def_readwrite("items", &Stack::items)
//         .def_pickle([](const Ref<Stack>& s) { return s->items; },
//                     [](std::vector<std::string> items) { return make_ref<Stack>(std::move(items)); });
//   }
//
// Objects are shared by reference (Ref<T>), also between Python and C++; lists, dicts and tuples are copied. Types of
// arguments and results: extend/boxed.h. Names that begin and end with __ are Python's special methods: __len__,
// __repr__.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "facula/extend/boxed.h"
#include "facula/extend/build.h"

namespace facula {

// The name of a parameter and its default, `arg("n") = 3`.
struct arg {
  explicit arg(std::string name_) : name(std::move(name_)) {}
  arg& operator=(io::Value v) {
    fallback = std::move(v);
    return *this;
  }
  std::string name;
  std::optional<io::Value> fallback;
};

namespace extend {

struct MethodParameter {
  std::string name;
  std::string (*type)();
  bool (*fits)(const io::Value&);
  std::optional<io::Value> fallback;
};
// A function of values and its parameters; the first parameter of a method is the object.
struct Method {
  std::string name, doc;
  std::vector<MethodParameter> parameters;
  std::string (*result)();
  std::function<io::Value(std::span<const io::Value>)> function;
  std::string schema() const;
  // The arguments in the order of the parameters, with defaults. A RuntimeError names the method, the argument and both
  // types.
  std::vector<io::Value> arguments(std::span<const io::Value> positional, const io::Dict& named = {}) const;
  // Checks the arguments and calls the function.
  io::Value operator()(std::span<const io::Value> positional, const io::Dict& named = {}) const;
};
struct Property {
  std::string name, doc;
  Method getter;
  std::optional<Method> setter;
};
struct Class {
  std::string ns, name, doc;
  std::type_index type;
  Build build;
  std::optional<Method> make;  // creates an object
  std::vector<Method> methods, static_methods;
  std::vector<Property> properties;
  std::optional<Method> get_state, set_state;  // object -> state, state -> object
  std::string full_name() const { return ns + "." + name; }
};

// Starts the registration of a class, as part of the load in progress or for the next look-up.
Class& declare_class(std::string ns, std::string name, std::string doc, std::type_index type, Build build);
// Returns null if there is none.
const Class* find_class(std::string_view ns, std::string_view name);
const Class* class_of(const CustomClassHolder& object);
std::vector<const Class*> classes();

template <class T>
MethodParameter method_parameter(size_t k) {
  return {"_" + std::to_string(k), &Boxed<T>::type, &Boxed<T>::fits, {}};
}
void name_parameters(Method& m, std::initializer_list<arg> names, size_t first);

// Wraps f(arguments...) as a Method. Parameters are named _0, _1; `names` applies to those after the first `unnamed`.
template <class R, class... A, class F>
Method method_of(std::string name, std::string doc, F f, std::initializer_list<arg> names, size_t unnamed) {
  Method m;
  m.name = std::move(name);
  m.doc = std::move(doc);
  size_t k = 0;
  (m.parameters.push_back(method_parameter<std::decay_t<A>>(k++)), ...);
  m.result = &Boxed<std::decay_t<R>>::type;
  m.function =
      [f = std::move(f)]([[maybe_unused]] std::span<const io::Value> arguments) mutable -> io::Value {
    return [&]<size_t... K>(std::index_sequence<K...>) -> io::Value {
      std::tuple<std::decay_t<A>...> values{Boxed<std::decay_t<A>>::get(arguments[K])...};
      if constexpr (std::is_void_v<R>) {
        f(std::get<K>(values)...);
        return {};
      } else return Boxed<std::decay_t<R>>::put(f(std::get<K>(values)...));
    }(std::index_sequence_for<A...>());
  };
  name_parameters(m, names, unnamed);
  return m;
}

// Wraps functions, lambdas and pointers to methods with C++ types as arguments.
template <class T, class F>
struct AsMethod : AsMethod<T, decltype(&F::operator())> {};
template <class T, class R, class... A>
struct AsMethod<T, R (*)(A...)> {
  template <class F>
  static Method make(std::string name, std::string doc, F f, std::initializer_list<arg> names,
                     size_t unnamed) {
    return method_of<R, A...>(std::move(name), std::move(doc), std::move(f), names, unnamed);
  }
};
template <class T, class C, class R, class... A>
struct AsMethod<T, R (C::*)(A...)> {
  template <class F>
  static Method make(std::string name, std::string doc, F f, std::initializer_list<arg> names,
                     size_t unnamed) {
    if constexpr (std::is_member_function_pointer_v<F>) {
      auto call = [f](Ref<T>& self, auto&... x) -> R { return (self.get()->*f)(x...); };
      return method_of<R, Ref<T>, A...>(std::move(name), std::move(doc), call, names, unnamed);
    } else
      return AsMethod<T, R (*)(A...)>::make(std::move(name), std::move(doc), std::move(f), names, unnamed);
  }
};
template <class T, class C, class R, class... A>
struct AsMethod<T, R (C::*)(A...) const> : AsMethod<T, R (C::*)(A...)> {};
template <class T, class C, class R, class... A>
struct AsMethod<T, R (C::*)(A...) noexcept> : AsMethod<T, R (C::*)(A...)> {};
template <class T, class C, class R, class... A>
struct AsMethod<T, R (C::*)(A...) const noexcept> : AsMethod<T, R (C::*)(A...)> {};

template <class... A>
struct Init {};
template <class F>
struct InitBy {
  F f;
};

}  // namespace extend

// The constructor with these arguments, or a function that returns Ref<T>.
template <class... A>
extend::Init<A...> init() {
  return {};
}
template <class F>
extend::InitBy<F> init(F f) {
  return {std::move(f)};
}

template <class T>
class class_ {
  static_assert(std::is_base_of_v<CustomClassHolder, T>,
                "a class that Python knows derives from CustomClassHolder");
  using Args = std::initializer_list<arg>;

 public:
  class_(std::string ns, std::string name, std::string doc = "")
      : class_info_(extend::declare_class(std::move(ns), std::move(name), std::move(doc), typeid(T),
                                          extend::kBuild)) {}

  template <class... A>
  class_& def(extend::Init<A...>, std::string doc = "", Args names = {}) {
    auto make = [](A&... x) { return make_ref<T>(std::move(x)...); };
    class_info_.make = extend::method_of<Ref<T>, A...>("__init__", std::move(doc), make, names, 0);
    return *this;
  }
  template <class F>
  class_& def(extend::InitBy<F> by, std::string doc = "", Args names = {}) {
    class_info_.make = extend::AsMethod<T, F>::make("__init__", std::move(doc), std::move(by.f), names, 0);
    return *this;
  }
  // Adds a method of T, or a function of const Ref<T>& and further arguments.
  template <class F>
  class_& def(std::string name, F f, std::string doc = "", Args names = {}) {
    class_info_.methods.push_back(
        extend::AsMethod<T, F>::make(std::move(name), std::move(doc), std::move(f), names, 1));
    return *this;
  }
  template <class F>
  class_& def_static(std::string name, F f, std::string doc = "", Args names = {}) {
    class_info_.static_methods.push_back(
        extend::AsMethod<T, F>::make(std::move(name), std::move(doc), std::move(f), names, 0));
    return *this;
  }
  template <class Get, class Set>
  class_& def_property(std::string name, Get get, Set set, std::string doc = "") {
    class_info_.properties.push_back(
        {name, std::move(doc), accessor(name, std::move(get)), accessor(name, std::move(set))});
    return *this;
  }
  template <class Get>
  class_& def_property(std::string name, Get get, const char* doc = "") {
    class_info_.properties.push_back({name, doc, accessor(name, std::move(get)), {}});
    return *this;
  }
  template <class M>
  class_& def_readwrite(std::string name, M T::* member) {
    return def_property(
        std::move(name), [member](const Ref<T>& self) -> M { return self.get()->*member; },
        [member](const Ref<T>& self, M x) { self.get()->*member = std::move(x); });
  }
  template <class M>
  class_& def_readonly(std::string name, M T::* member) {
    return def_property(std::move(name), [member](const Ref<T>& self) -> M { return self.get()->*member; });
  }
  // get(const Ref<T>&) returns a state from which set(state) creates an equal object; for pickles and copies.
  template <class Get, class Set>
  class_& def_pickle(Get get, Set set) {
    class_info_.get_state = accessor("__getstate__", std::move(get));
    class_info_.set_state = extend::AsMethod<T, Set>::make("__setstate__", "", std::move(set), {}, 0);
    return *this;
  }

 private:
  template <class F>
  static extend::Method accessor(std::string name, F f) {
    return extend::AsMethod<T, F>::make(std::move(name), "", std::move(f), {}, 1);
  }
  extend::Class& class_info_;
};

}  // namespace facula
