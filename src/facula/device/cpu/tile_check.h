// Whether products of tiles by this processor are those that loop/tiles.h describes.
#pragma once
#include <span>

#include "facula/loop/nest.h"
#include "facula/loop/tiles.h"

namespace facula::device::cpu {

// Whether there is a kernel for a nest, or one can be compiled.
bool has_kernel(const loop::Nest& n);

// Multiplies two panels by a kernel and by the reference, and compares the bits. `p` reads buffers 0 and 1. False also if there is no
// kernel.
bool is_reference_product(const loop::TileProduct& p, std::span<int32_t> left, std::span<int32_t> right,
                          int64_t steps);

}  // namespace facula::device::cpu
