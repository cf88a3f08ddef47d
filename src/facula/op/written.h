// The check of a call in place that is made by computing its value first and copying it.
#pragma once
#include <string>

#include "facula/op/operator.h"

namespace facula::op {

// RuntimeError unless `self` has the sizes of `value` and a dtype that this converts to. `where` is a hint.
void check_written(const Operator& o, const Tensor& value, const Tensor& self, const std::string& where = "");

}  // namespace facula::op
