// The schema string of an operator, parsed. It is the operator's identity.
//   name[.overload](Type[(alias)] arg[=default], ..., *, keyword-only...) -> Type | (Type name, ...)
// Types: Tensor Scalar int SymInt float bool str dtype Device MemoryFormat Generator, each with ? for optional;
// T[] and T[n] for lists (int[2] takes one int for all); Tensor?[] for index lists. Aliases: (a) shares, (a!) writes.
// Tensor|Scalar: Python users may give a number beside a tensor; Scalar|Tensor: also where all operands are numbers.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "facula/op/value.h"

namespace facula::op {

enum class Type : uint8_t { Tensor, Scalar, Int, Float, Bool, String, DType, Device, Format, Generator };

struct Parameter {
  std::string name;
  Type type = Type::Tensor;
  bool symbolic = false;        // SymInt
  bool list = false;
  int list_size = 0;            // int[2]: 2; 0: any
  bool optional = false;        // T? (or T[]? for lists)
  bool optional_items = false;  // Tensor?[]
  bool keyword_only = false;
  char alias = 0;               // 'a' in (a), (a!)
  bool written = false;         // (a!)
  bool number = false;          // Tensor|Scalar, Scalar|Tensor
  bool number_alone = false;    // Scalar|Tensor
  bool has_default = false;
  Args fallback;                // the default's value, one
  std::string default_text;     // as written
};

struct Return {
  std::string name;
  Type type = Type::Tensor;
  bool list = false;
  char alias = 0;
  bool written = false;
};

struct Schema {
  std::string text, name, overload;   // full name: name.overload
  std::vector<Parameter> parameters;
  std::vector<Return> returns;
  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }
  int index_of(std::string_view parameter) const;  // -1 if absent
  bool mutates() const;
};

Schema parse_schema(std::string_view text);  // ValueError with the position of the mistake

}  // namespace facula::op
