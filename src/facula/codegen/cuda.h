// A nest of a grid (schedule/grid.h) as CUDA C. It decides nothing; the text needs no header of CUDA's but what nvcc
// includes by itself, and has to be compiled with -fmad=false, as sums of products are fma(). Elementary and
// special functions are those of C99 (c99.h), to the bit.
//
// A kernel is `extern "C" __global__ void name(facula_arguments<buffers, params>, begin, end, status, scratch, bytes)`: tasks
// [begin, end) by any number of blocks, each of as many threads as the nest says; `bytes` of scratch memory a block.
#pragma once
#include <string>

#include "facula/loop/nest.h"

namespace facula::codegen {

// Blocks of 256 threads, 48 KB of shared memory: what every GPU since sm_75 has without asking for more.
const loop::GridLimits& cuda_limits();

std::string cuda_function(const loop::Nest& n, const std::string& name);
// What `code`, the functions of a file, needs before it, once: of elementary and special functions those that it calls.
std::string cuda_prelude(const std::string& code);
// Scratch memory of a block, in bytes.
int64_t cuda_scratch_bytes(const loop::Nest& n, const int64_t* params);

}  // namespace facula::codegen
