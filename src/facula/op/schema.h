// The schema string of an operator, parsed. It is the operator's identity.
//   [namespace::]name[.overload](Type[(alias)] arg[=default], ..., *, keyword-only...) -> Type | (Type name, ...)
// Types: Tensor Scalar int SymInt float bool str dtype (or ScalarType) Device MemoryFormat Generator, each with ? for
// optional; __torch__.torch.classes.NAMESPACE.NAME for a user's class (extend/class.h); T[] and T[n] for lists
// (int[2] takes one int for both); Tensor?[] for index lists. Aliases: (a) shares memory, (a!) writes. Tensor|Scalar:
// Python users may pass a number next to a tensor; Scalar|Tensor: also if all operands are numbers.
#pragma once
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "facula/op/value.h"

namespace facula::op {

enum class Type : uint8_t {
  Tensor,
  Scalar,
  Int,
  Float,
  Bool,
  String,
  DType,
  Device,
  Format,
  Generator,
  Object
};

struct Parameter {
  std::string name;
  Type type = Type::Tensor;
  bool symbolic = false;  // SymInt
  bool list = false;
  int list_size = 0;            // int[2]: 2; 0: any
  bool optional = false;        // T? (or T[]? for lists)
  bool optional_items = false;  // Tensor?[]
  bool keyword_only = false;
  char alias = 0;             // 'a' in (a), (a!)
  bool written = false;       // (a!)
  bool number = false;        // Tensor|Scalar, Scalar|Tensor
  bool number_alone = false;  // Scalar|Tensor
  std::string class_name;     // of an Object: namespace.Name
  bool has_default = false;
  Args fallback;             // the value of the default, one value
  std::string default_text;  // the text of the default
  // Operands are the inputs of kernels; all other arguments are constants of the kernel (op/operands.h).
  bool is_number_operand() const { return type == Type::Scalar && !list; }
  bool is_operand() const { return type == Type::Tensor || is_number_operand(); }
};

struct Return {
  std::string name;
  Type type = Type::Tensor;
  bool list = false;
  char alias = 0;
  bool written = false;
};

// The name of a parameter with its hash, which is computed at compile time for literals.
class ParameterName {
 public:
  template <size_t N>
  consteval ParameterName(const char (&literal)[N]) : text_(literal, N - 1), hash_(hash_of(text_)) {}
  template <class T>
    requires(std::is_convertible_v<const T&, std::string_view> && !std::is_array_v<T>)
  constexpr ParameterName(const T& text) : text_(text), hash_(hash_of(text_)) {}
  constexpr std::string_view text() const { return text_; }
  constexpr uint64_t hash() const { return hash_; }

 private:
  static constexpr uint64_t hash_of(std::string_view s) {  // FNV-1a
    uint64_t h = 0xcbf29ce484222325ull;
    for (char c : s) h = (h ^ uint8_t(c)) * 0x100000001b3ull;
    return h;
  }
  std::string_view text_;
  uint64_t hash_;
};

struct Schema {
  std::string text, name, overload;  // full name: name.overload
  std::vector<Parameter> parameters;
  std::vector<Return> returns;
  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }
  std::vector<uint64_t> hashes;          // of the parameters' names
  int index_of(ParameterName p) const {  // -1 if absent
    for (size_t i = 0; i < hashes.size(); ++i)
      if (hashes[i] == p.hash()) return int(i);
    return -1;
  }
  bool mutates() const;
  std::string_view library() const;  // the namespace of a user's operator; empty: the catalog
};

Schema parse_schema(std::string_view text);  // ValueError with the position of the mistake

}  // namespace facula::op
