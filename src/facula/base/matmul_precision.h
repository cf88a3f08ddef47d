// How exactly products of float32 matrices are computed by a matrix unit of 16-bit floats (device/cpu/tile_nest.h). Processors without
// one compute them in float32, whatever it says.
#pragma once
#include <cstdint>

namespace facula {

enum class MatmulPrecision : uint8_t {
  highest,  // errors as of a chain of float32 additions
  high,     // about 2^-16 of |a| |b|
  medium,   // bfloat16's
};
MatmulPrecision matmul_precision();
void set_matmul_precision(MatmulPrecision p);  // of the process

}  // namespace facula
