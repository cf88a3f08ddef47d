// Errors of kernels in traced programs: names the operator of a fused step whose check failed.
#pragma once
#include "facula/run/plan.h"

namespace facula::run {

// The error of a kernel that computes `outputs` from `inputs` (value numbers), in the name of the operator that checks the index:
// the one whose size fits the error, or all candidates. Unchanged if the program has a name that users know.
Error as_of_operator(const Error& e, const NumberedGraph& g, const std::vector<int>& inputs,
                     const std::vector<int>& outputs);

}  // namespace facula::run
