// The literals of samples ("2", "[0, 1]", "'tanh'") as values of the parameters that they are given for.
#pragma once
#include <string>

#include "facula/op/schema.h"

namespace facula::test {

// A schema whose only parameter has the value as its default, and keeps it alive.
inline op::Schema literal(const op::Parameter& p, const std::string& text) {
  static const char* const names[] = {"Tensor", "Scalar", "SymInt", "float",        "bool",
                                      "str",    "dtype",  "Device", "MemoryFormat", "Generator"};
  bool number = p.type == op::Type::Tensor && !p.list && text != "None";
  return op::parse_schema("f(" + std::string(number ? "Scalar" : names[int(p.type)]) + (p.list ? "[]" : "") +
                          "? x=" + text + ") -> Tensor");
}

}  // namespace facula::test
