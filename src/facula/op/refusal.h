// Elements that an operator refuses. Its body says which elements are `accepted`, its definition has the error
// (`.refuses(type, {text})`), and a kernel that encounters a refused element reports the text by a code.
//   ensures: a code identifies its text, and is not a possible index of a tensor
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "facula/loop/expr.h"
#include "facula/op/operator.h"

namespace facula::op {

// x, which raises `text` (one of the texts with which the operator refuses) where `accepted` is false.
loop::Expr accepted(loop::Expr x, loop::Expr accepted, std::string_view text);
// The code that a kernel reports as an index for `text`; and the operator that refuses with this code, null for
// ordinary indices.
int64_t refusal_code(std::string_view text);
std::pair<const Operator*, std::string> find_refusal(int64_t code);

}  // namespace facula::op
