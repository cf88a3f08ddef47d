// Value: the contents of a checkpoint: None, bool, int, float, complex, str, dtype, Tensor, list, tuple, dict, nested.
// Methods of users' classes (extend/class.h) take and return them too, and objects.
//
//   io::Value state = io::Dict{{"epoch", 3}, {"model", model.state_dict()}, {"history", io::List{0.5, 0.25}}};
//   int64_t epoch = state["epoch"].integer();
//   const Tensor& w = state["model"]["fc.weight"].tensor();
//
// Containers are shared, as in Python: a copy of a Value is another handle to the same list or dict. Reading a value as
// another kind raises TypeError, a missing key IndexError. An `Object` (a function, a module) exists in running programs
// only: writing it to a file raises TypeError.
#pragma once
#include <complex>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "facula/tensor/tensor.h"

namespace facula::io {

class Value;
class Dict;
using List = std::vector<Value>;
struct Tuple;

struct Object {
  virtual ~Object() = default;
  virtual std::string to_string() const = 0;
};
// An object of a user's class (extend/class.h).
struct CustomObject final : Object {
  explicit CustomObject(Ref<CustomClassHolder> o) : object(std::move(o)) {}
  std::string to_string() const override { return "<object>"; }
  Ref<CustomClassHolder> object;
};

class Value {
 public:
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    complex,
    string,
    dtype,
    tensor,
    list,
    tuple,
    dict,
    object
  };

  Value() = default;
  Value(std::nullopt_t) {}
  template <std::same_as<bool> B>
  Value(B v) : data_(v) {}
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  Value(I v) : data_(int64_t(v)) {}
  template <std::floating_point F>
  Value(F v) : data_(double(v)) {}
  Value(std::complex<double> v) : data_(v) {}
  Value(const char* v) : Value(std::string_view(v)) {}
  Value(std::string_view v) : Value(std::string(v)) {}
  Value(std::string v);
  Value(DType v) : data_(v) {}
  Value(Tensor v) : data_(std::move(v)) {}
  Value(List v);
  Value(Tuple v);
  Value(Dict v);
  Value(Ref<CustomClassHolder> v);  // a CustomObject
  template <std::derived_from<Object> O>
  Value(std::shared_ptr<O> v) : data_(std::shared_ptr<Object>(std::move(v))) {}

  Kind kind() const { return Kind(data_.index()); }
  bool is_none() const { return kind() == Kind::none; }
  bool is_tensor() const { return kind() == Kind::tensor; }
  bool is_dict() const { return kind() == Kind::dict; }

  bool boolean() const;
  int64_t integer() const;
  double number() const;                 // of an int, a float, or a tensor of one element
  std::complex<double> complex() const;  // of any number
  const std::string& string() const;
  DType dtype() const;
  const Tensor& tensor() const;
  List& list() const;  // the items of a list or tuple
  Dict& dict() const;
  template <std::derived_from<Object> O>
  O* object() const {  // null if it has another type
    auto* o = std::get_if<std::shared_ptr<Object>>(&data_);
    return o ? dynamic_cast<O*>(o->get()) : nullptr;
  }
  const Ref<CustomClassHolder>& custom_object() const;

  // An item of a dict by key, or of a list or tuple by index (from the end if negative).
  Value& operator[](const Value& key) const;
  bool contains(const Value& key) const;  // true if the dict has this key
  size_t size() const;                    // of a string or container
  // address of a container or object, equal for handles to the same one; else null
  const void* identity() const;

  // Compares numbers by value, containers item by item, tensors by dtype, sizes and elements.
  friend bool operator==(const Value& a, const Value& b);

 private:
  [[noreturn]] void is_no(const char* wanted) const;
  std::variant<std::monostate, bool, int64_t, double, std::complex<double>,
               std::shared_ptr<const std::string>, DType, Tensor, std::shared_ptr<List>,
               std::shared_ptr<Tuple>, std::shared_ptr<Dict>, std::shared_ptr<Object>>
      data_;
};

struct Tuple {
  List items;
};

// A dict in insertion order. Keys are None, bool, int, float or str. Look-up takes constant time.
class Dict {
 public:
  using Item = std::pair<Value, Value>;
  Dict() = default;
  Dict(std::initializer_list<Item> items) {
    for (auto& [k, v] : items) set(k, v);
  }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  std::vector<Item>::const_iterator begin() const { return items_.begin(); }
  std::vector<Item>::const_iterator end() const { return items_.end(); }
  const Value* find(const Value& key) const;  // null if there is none
  Value* find(const Value& key) { return const_cast<Value*>(std::as_const(*this).find(key)); }
  bool contains(const Value& key) const { return find(key); }
  Value& operator[](const Value& key);      // inserts it if there is none
  const Value& at(const Value& key) const;  // IndexError if there is none
  void set(const Value& key, Value v) { (*this)[key] = std::move(v); }
  void erase(const Value& key);
  void clear() {
    items_.clear();
    slots_.clear();
  }

 private:
  size_t slot_of(const Value& key) const;  // the slot of a key, or the free slot for it
  void rehash(size_t slots);
  std::vector<Item> items_;
  std::vector<uint32_t> slots_;  // open addressing: index of an item + 1, 0: free
};

const char* name(Value::Kind k);  // "dict"
std::string to_string(const Value& v,
                      size_t limit = 1000);  // in Python's format, truncated after `limit` characters
}  // namespace facula::io
