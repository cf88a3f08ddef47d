// Pointwise work on the result of a library operator, which the backend may do while it has the elements of the result in
// registers, in place of a kernel that reads them from memory again.
#pragma once
#include <optional>
#include <vector>

#include "facula/loop/expr.h"
#include "facula/schedule/group.h"
#include "facula/schedule/schedule.h"

namespace facula::schedule {

// The function of one element of a row-major result, whose rows are counted over all matrices of a batch. It is an expression
// over the local kResultElement (the element), loads of operands 0, 1, ... at flat offsets over the indices 0 (row) and 1 (column),
// and the params 0, 1, ....
constexpr int kResultElement = 1 << 20;
struct Epilogue {
  loop::Expr value;             // null: the element itself
  std::vector<DType> operands;  // dtypes
  int params = 0;
  // Expressions are unique, so their addresses identify them.
  auto operator<=>(const Epilogue& o) const { return value.get() <=> o.value.get(); }
  bool operator==(const Epilogue& o) const { return value.get() == o.value.get(); }
};

struct GroupEpilogue {
  Epilogue function;
  std::vector<int> inputs;  // by operand of the epilogue: the group's input
  Ints params;
};
// The group as an epilogue of its input `result`, a float32 matrix or batch of matrices; empty unless it computes one float32
// tensor of this layout, element by element, from operands whose offsets are linear in row and column.
std::optional<GroupEpilogue> as_epilogue(const Group& g, int result, const Layout& l);

}  // namespace facula::schedule
