// Prints a nest for a grid (schedule/grid.h) as CUDA C. It makes no decisions. The text needs no header except those
// that nvcc includes by itself, and has to be compiled with -fmad=false, since sums of products are fma(). Elementary
// and special functions are those of C99 (c99.h), bit by bit.
//
// A kernel is `extern "C" __global__ void name(facula_arguments<buffers, params>, begin, end, status, scratch,
// bytes)`. It runs tasks [begin, end) by any number of blocks, each with the nest's number of threads and `bytes` of
// scratch memory.
#pragma once
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {

// Blocks of 256 threads and 48 KB of shared memory, which every GPU since sm_75 has by default.
const loop::GridLimits& cuda_limits();

std::string cuda_function(const loop::Nest& n, const std::string& name);
// The text that `code`, all functions of a file, needs in front of it, once; it includes the elementary and special
// functions that `code` calls.
std::string cuda_prelude(const std::string& code);
// The scratch memory of a block in bytes.
int64_t cuda_scratch_bytes(const loop::Nest& n, const int64_t* params);

}  // namespace facula::codegen
