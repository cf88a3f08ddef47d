// Reductions of the same elements of several ranks, in the order of the ranks: results do not depend on which message
// arrives first, on the number of chunks, or on the transport. Elements of 16 bits are added in float and rounded once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "facula/base/dtype.h"

namespace facula::distributed {

// Numbers as in PyTorch's ReduceOp.
enum class Reduction : uint8_t { sum, avg, product, min, max, band, bor, bxor };
const char* name(Reduction op);

// Raises RuntimeError with `call` if the reduction is not defined for elements of this dtype.
void check_reduction(const char* call, Reduction op, DType dtype);

// to[i] = reduction of sources[0][i], ..., sources[n - 1][i]. `to` may be one of the sources; pointers need no
// alignment. An average is the sum divided by `n`.
void reduce(Reduction op, DType dtype, void* to, const void* const* sources, int n, size_t elements);

}  // namespace facula::distributed
