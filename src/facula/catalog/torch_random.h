// The random numbers that PyTorch's CPU generator gives for a seed: the words of MT19937 (Matsumoto and Nishimura, 1998), one
// after the other, and PyTorch's way to make numbers of them. Programs that run under PyTorch's name expect these numbers.
// They are drawn on the host by one thread. Calls that are traced, batched or made on another device draw counter-based
// numbers (base/random.h) from the same generator, whose offset counts words in both cases.
#pragma once
#include "facula/base/random.h"
#include "facula/tensor/tensor.h"

namespace facula::catalog::torch_random {

// Turns PyTorch's numbers on or off for the process; they are off at first.
void use(bool on);
// True if a call that creates a tensor of these sizes on this thread draws PyTorch's numbers.
bool is_used(SymSpan size);

// Contiguous tensors on the CPU. A generator of null is the default one.
Tensor uniform(SymSpan size, DType t, double from, double to,
               Generator* g);  // of floating dtypes, in [from, to]
Tensor normal(SymSpan size, DType t, double mean, double std,
              Generator* g);  // of floating and complex dtypes
// Integers of 64 bits in [low, low + range), where a range of 0 stands for 2^64. `wide`: each takes two words.
Tensor integers(SymSpan size, int64_t low, uint64_t range, bool wide, Generator* g);
Tensor permutation(int64_t n, Generator* g);
// Logarithms, in float64, of numbers of the gamma distribution with these concentrations and rate 1.
Tensor log_gamma(const Tensor& concentration, Generator* g);

// A bounded range from which each integer takes two words.
inline bool is_wide(uint64_t range) { return range == 0 || range >= uint64_t(1) << 28; }

}  // namespace facula::catalog::torch_random
