// Elements that an operator refuses: its body says which (`accepted`), its definition with which error
// (`.refuses(type, {text})`), and a kernel that meets one tells the text by its code.
//   ensures: a code stands for its text alone and is no index that a tensor can have
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "facula/loop/expr.h"
#include "facula/op/operator.h"

namespace facula::op {

// x, where an element that is not `accepted` raises `text`, one of those that the operator refuses with.
loop::Expr accepted(loop::Expr x, loop::Expr accepted, std::string_view text);
// The index that a kernel gives for `text`; and the operator that refuses so, null for an ordinary index.
int64_t refusal_code(std::string_view text);
std::pair<const Operator*, std::string> find_refusal(int64_t code);

}  // namespace facula::op
