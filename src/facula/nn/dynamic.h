// The values of translated code. Modules and functions of facula.nn are written once, in Python; generate.py translates
// them to C++ that computes with io::Value by the rules of Python, and calls operators by name. Users see the typed
// classes of modules.h; this header is for the translation and for the implementation of Python's builtins in it.
//
// Operands of an expression are evaluated from left to right, as in Python, because they are in braces.
#pragma once
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "facula/base/error.h"
#include "facula/io/value.h"
#include "facula/nn/argument.h"
#include "facula/nn/module.h"
#include "facula/op/call.h"

namespace facula::nn {

// The arguments of a call.
struct Arguments {
  std::vector<io::Value> items;
  std::vector<std::pair<std::string, io::Value>> named;

  Arguments() = default;
  Arguments(std::initializer_list<io::Value> l) : items(l) {}
  Arguments&& add(io::Value v) && {
    items.push_back(std::move(v));
    return std::move(*this);
  }
  Arguments&& name(std::string n, io::Value v) && {
    named.emplace_back(std::move(n), std::move(v));
    return std::move(*this);
  }
  Arguments&& spread(const io::Value& sequence) &&;    // *sequence
  Arguments&& spread_named(const io::Value& dict) &&;  // **dict
};
using Body = io::Value (*)(Arguments&);

// A function, a bound method or an operator.
struct Function : io::Object {
  std::string name;
  std::function<io::Value(Arguments&)> call;
  Function(std::string n, std::function<io::Value(Arguments&)> f) : name(std::move(n)), call(std::move(f)) {}
  std::string to_string() const override { return "<function " + name + ">"; }
};
struct ModuleObject : io::Object {
  Module module;
  explicit ModuleObject(Module m) : module(std::move(m)) {}
  std::string to_string() const override { return module.to_string(); }
};
// A tensor that becomes a parameter of the module that it is assigned to.
struct ParameterObject : io::Object {
  Tensor tensor;
  bool requires_grad;
  ParameterObject(Tensor t, bool grad) : tensor(std::move(t)), requires_grad(grad) {}
  std::string to_string() const override { return "<parameter>"; }
};
struct GeneratorObject : io::Object {
  Generator* generator;
  explicit GeneratorObject(Generator* g) : generator(g) {}
  std::string to_string() const override { return "<generator>"; }
};
// A dict that is stored in C++: the options of a group, the state of a parameter.
struct Mapping : io::Object {
  virtual io::Dict& dict() const = 0;
  virtual bool find(const io::Value& key, io::Value& found) const;
  std::string to_string() const override { return "<dict of C++>"; }
};
struct SliceObject : io::Object {
  io::Value start, stop, step;
  SliceObject(io::Value a, io::Value b, io::Value c)
      : start(std::move(a)), stop(std::move(b)), step(std::move(c)) {}
  std::string to_string() const override { return "<slice>"; }
};

// A class of modules: its own members, then those of its base.
struct Class {
  enum class Kind : uint8_t { method, property, unbound, constant };
  struct Member {
    std::string_view name;
    Kind kind;
    Body body;  // constant: returns it, without arguments
  };
  const char* name;
  const Class* base;
  std::vector<Member> members;
  const Member* find(std::string_view member) const;
  bool derives_from(const Class& c) const;
};
// A C++ object whose attributes translated code can access.
struct Native : io::Object {
  virtual const Class& type() const = 0;
  virtual bool find(std::string_view name, io::Value& found) const = 0;
  virtual void set(std::string_view name, const io::Value& v) = 0;
  std::string to_string() const override { return std::string("<") + type().name + ">"; }
};
struct ClassObject : io::Object {
  const Class* type;
  explicit ClassObject(const Class* c) : type(c) {}
  std::string to_string() const override { return std::string("<class '") + type->name + "'>"; }
};

// The arguments that the typed constructors and calls of modules.h pass on, by name.
struct Given : Arguments {
  Given&& with(const char* n, const Argument& v) && {
    if (v.is_given()) named.emplace_back(n, v);
    return std::move(*this);
  }
  template <class T>
    requires(!std::derived_from<T, Argument>)
  Given&& with(const char* n, T v) && {
    named.emplace_back(n, io::Value(std::move(v)));
    return std::move(*this);
  }
  Given&& with(const char* n, const Tensor& v) && {
    named.emplace_back(n, v.defined() ? io::Value(v) : io::Value());
    return std::move(*this);
  }
  Given&& with(const char* n, Generator* v) && {
    named.emplace_back(n, v ? io::Value(std::make_shared<GeneratorObject>(v)) : io::Value());
    return std::move(*this);
  }
  template <class T>
  Given&& with(const char* n, const std::optional<T>& v) && {
    named.emplace_back(n, v ? io::Value(*v) : io::Value());
    return std::move(*this);
  }
};

// The operators of one name; a call uses the first one that accepts all arguments. If the name ends with `_`, their
// in-place forms.
class Overloads {
 public:
  explicit Overloads(std::string_view name);
  bool empty() const { return operators_.empty(); }
  io::Value operator()(Arguments&& a) const;

 private:
  std::string name_;
  std::vector<const op::Operator*> operators_;
  op::Form form_ = op::Form::functional;
};
#define FACULA_OPERATOR(name)                           \
  ([]() -> const ::facula::nn::Overloads& {             \
    static const ::facula::nn::Overloads operators(name); \
    return operators;                                   \
  }())

// Binds arguments to parameters; the first `positional` names may be passed by position.
class Bound {
 public:
  Bound(Arguments& a, const char* function, std::span<const std::string_view> names, size_t positional,
        size_t required, bool rest, bool rest_named);
  bool has(size_t k) const { return given_[k]; }
  io::Value& operator[](size_t k) { return values_[k]; }
  io::Value rest() const { return io::Tuple{rest_}; }
  io::Value rest_named() const { return rest_named_; }

 private:
  std::vector<io::Value> values_;
  std::vector<bool> given_;
  io::List rest_;
  io::Dict rest_named_;
};

// ---- Python's syntax

io::Value call(const io::Value& f, Arguments&& a);
io::Value method(const io::Value& self, const char* name, Arguments&& a);
io::Value method(const io::Value& self, const char* name, const Overloads& operators, Arguments&& a);
io::Value attribute(const io::Value& self, std::string_view name);
void set_attribute(const io::Value& self, std::string_view name, const io::Value& v);
bool has_attribute(const io::Value& self, std::string_view name);
io::Value item(const io::Value& of, const io::Value& index);
void set_item(const io::Value& of, const io::Value& index, const io::Value& v);
bool truth(const io::Value& v);
io::Dict& dict_of(const io::Value& v);  // of a dict or a Mapping
bool is_same(const io::Value& a, const io::Value& b);
bool contains(const io::Value& of, const io::Value& v);
io::List items_of(const io::Value& v);
io::List unpacked(const io::Value& v, size_t count);
io::List unpacked(const io::Value& v, size_t before, size_t after);  // a, *b, c
std::string text(const io::Value& v, std::string_view format = "");  // like str() and f-strings
io::Value slice(io::Value start, io::Value stop, io::Value step);
io::Value type_name(const io::Value& v);

struct Two {
  io::Value a, b;
  io::Value add() const;
  io::Value sub() const;
  io::Value mul() const;
  io::Value div() const;
  io::Value floordiv() const;
  io::Value mod() const;
  io::Value pow() const;
  io::Value matmul() const;
  io::Value bitand_() const;
  io::Value eq() const;
  io::Value ne() const;
  io::Value lt() const;
  io::Value le() const;
  io::Value gt() const;
  io::Value ge() const;
  io::Value item() const { return nn::item(a, b); }
};
// A value that is called, or one of its methods; evaluated before the arguments.
struct On {
  io::Value self;
  io::Value call(Arguments&& a) const { return nn::call(self, std::move(a)); }
  io::Value method(const char* name, Arguments&& a) const { return nn::method(self, name, std::move(a)); }
  io::Value method(const char* name, const Overloads& o, Arguments&& a) const {
    return nn::method(self, name, o, std::move(a));
  }
};
// Runs the code of a `finally` block.
class Finally {
 public:
  explicit Finally(std::function<void()> f) : f_(std::move(f)) {}
  ~Finally() noexcept(false) { f_(); }

 private:
  std::function<void()> f_;
};
inline io::Value invoke(Body f, Arguments&& a) { return f(a); }
io::Value negative(const io::Value& v);
io::Value inverted(const io::Value& v);

enum Is : unsigned {
  is_bool = 1,
  is_int = 2,
  is_float = 4,
  is_str = 8,
  is_tuple = 16,
  is_list = 32,
  is_dict = 64,
  is_tensor = 128,
  is_module = 256,
  is_complex = 512,
  is_function = 1024,
};
bool is_a(const io::Value& v, unsigned kinds);  // isinstance
bool is_a(const io::Value& v, const Class& c);

io::Value function(std::string name, std::function<io::Value(Arguments&)> f);
io::Value operator_value(std::string_view name);  // an operator as a function
io::Value class_value(const Class& c);
io::Value instance(const Class& c, Arguments&& a);
// Creates a module of a class, for the constructors of modules.h.
Module construct(const Class& c, Arguments&& a);
io::Value forward(const Module& m, Arguments&& a);
Tensor own_tensor(const Module& m, std::string_view name);  // a parameter or buffer; undefined if it is None
std::tuple<Tensor, Tensor> two_tensors(const io::Value& v);

// The classes of modules.h.
struct NamedClass {
  std::string_view name;
  const Class* type;
};
std::span<const NamedClass> classes();
// The functions of init.h.
struct NamedFunction {
  std::string_view name;
  Body body;
};
std::span<const NamedFunction> init_functions();
// The functions of nn.functional that are translated.
std::span<const NamedFunction> functional_functions();
[[noreturn]] void raise(ErrorType type, const std::string& message);
[[noreturn]] io::Value unsupported(const char* what);  // for features that C++ does not have
void warn(const io::Value& text);

// ---- Python's functions: builtins, math and others
#define FACULA_BUILTINS(_)                                                                                    \
  _(py_int) _(py_float) _(py_bool) _(py_str) _(py_tuple) _(py_list) _(py_dict) _(py_len) _(py_min) _(py_max)  \
  _(py_sum) _(py_any) _(py_all) _(py_zip) _(py_enumerate) _(py_range) _(py_map) _(py_sorted) _(py_reversed)   \
  _(py_set) _(py_getattr) _(py_setattr) _(py_abs) _(py_callable) _(py_type) _(py_complex) _(single) _(finfo) _(is_tracing) _(math_sqrt) _(math_floor)                     \
  _(math_ceil) _(math_log) _(math_prod) _(math_erf) _(make_parameter) _(make_tensor) _(deep_copy)             \
  _(require) _(autocast_state) _(promote_types) _(math_cos) _(bisect_right) _(counter) _(parameters_by_layout) \
  _(outside_of_trace)
#define FACULA_DECLARE(name) io::Value name(Arguments& a);
FACULA_BUILTINS(FACULA_DECLARE)
#undef FACULA_DECLARE

extern const Class module_class, module_list_class, sequential_class, optimizer_class;

// The states of an optimizer: a dict for each parameter, created on demand.
struct States : io::Object {
  std::unordered_map<const TensorImpl*, std::pair<Tensor, io::Value>> of;
  virtual io::Value at(const Tensor& p);
  virtual void set(const Tensor& p, io::Value state);
  std::string to_string() const override { return "<states of parameters>"; }
};

// Access of this room's sources to the attributes of modules.
struct Dynamic {
  static Module::State& state(const Module& m) { return *m.state_; }
};

}  // namespace facula::nn
