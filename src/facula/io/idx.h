// IDX files, the format of MNIST and similar data sets: two zero bytes, a type, the rank, big-endian sizes, elements.
#pragma once
#include <string>

#include "facula/tensor/tensor.h"

namespace facula::io {

// Returns the array in a file, plain or compressed by gzip: uint8, int8, int16, int32, float32 or float64. A damaged
// file, or one of another format, raises one RuntimeError; allocations are bounded by the file's contents.
Tensor read_idx(const std::string& path);

}  // namespace facula::io
