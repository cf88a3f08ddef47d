// The random numbers that PyTorch's CPU generator gives for a seed, which programs expect that run under PyTorch's name. They are
// drawn on the host by one thread (device/cpu/torch_random.cpp). Calls that are batched or made on another device draw
// counter-based numbers (base/random.h) from the same generator, whose offset counts words in both cases.
#pragma once
#include "facula/base/random.h"
#include "facula/op/value.h"
#include "facula/tensor/tensor.h"

namespace facula::catalog::torch_random {

// Turns PyTorch's numbers on or off for the process; they are off at first.
void use(bool on);
// True if a call on this thread draws PyTorch's numbers.
bool is_used();

// Contiguous tensors on the CPU. A generator of null is the default one.
Tensor uniform(SymSpan size, DType t, double from, double to,
               Generator* g);  // of floating dtypes, in [from, to]
Tensor normal(SymSpan size, DType t, double mean, double std, Generator* g);  // of floating dtypes
// Integers in [low, low + range), where a range of 0 stands for 2^64. `distribution`: see the operator.
Tensor integers(SymSpan size, const op::Value& low, const op::Value& range, DType t, Generator* g,
                const char* distribution = "integers");
Tensor permutation(SymInt n, Generator* g);
// Logarithms, in float64, of numbers of the gamma distribution with these concentrations and rate 1.
Tensor log_gamma(const Tensor& concentration, Generator* g);

}  // namespace facula::catalog::torch_random
