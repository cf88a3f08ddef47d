// IDX files, as the MNIST family of data sets is stored: two zero bytes, a type, the rank, big-endian sizes,
// elements.
#pragma once
#include <string>

#include "facula/tensor/tensor.h"

namespace facula::io {

// The array in a file, plain or compressed by gzip: uint8, int8, int16, int32, float32 or float64. A file
// that is damaged or is no IDX file gives one RuntimeError; nothing is allocated beyond what the file holds.
Tensor read_idx(const std::string& path);

}  // namespace facula::io
