// Errors of kernels in programs of users' functions: which operator of a step looked at what did not fit.
#pragma once
#include "facula/run/plan.h"

namespace facula::run {

// The error of a kernel that computes `outputs` from `inputs` (numbers of values), as the operator raises it that looks at an
// index: one of them if the size tells which, else all that may have. Unchanged where a name of users' stands for all calls.
Error as_of_operator(const Error& e, const NumberedGraph& g, const std::vector<int>& inputs,
                     const std::vector<int>& outputs);

}  // namespace facula::run
