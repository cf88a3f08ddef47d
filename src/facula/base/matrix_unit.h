// The matrix unit of this processor, for kernels that are compiled for what it has.
#pragma once

namespace facula {

// Whether this processor has a matrix unit for bfloat16 (Intel AMX), and the system lets this process use it. False if
// FACULA_CPU_CAPABILITY restricts the instruction set, or FACULA_TARGET prints kernels as text, which has no products of tiles.
bool has_matrix_unit();
// The same for bytes.
bool has_byte_matrix_unit();

}  // namespace facula
