// Decides whether a generated kernel or a library multiplies float32 matrices, by a small model of the time that each takes. Its
// constants are measured (docs/codegen.md, "How a product is made"; `make bench ARGS="--only products"` holds it against the clock).
#pragma once
#include "facula/base/cache_sizes.h"
#include "facula/schedule/product_tiles.h"

namespace facula::schedule {

// Nanoseconds of one thread.
struct ProductCosts {
  double generated, library;
};
// `epilogue`: pointwise work follows, which a library leaves to a separate kernel. `lanes`: of a vector of 32-bit elements.
ProductCosts product_costs(const ProductShape& s, bool epilogue, int lanes, const CacheSizes& caches);
// Whether the generated kernel is faster by more than the model's error.
bool prefers_generated(const ProductShape& s, bool epilogue, int lanes, const CacheSizes& caches);

// Whether a matrix unit is faster than both, for numbers that are divided into `parts` (tile_blocks). `windows`: of a convolution, whose
// windows of images are one operand.
bool prefers_tiles(const ProductShape& s, int parts, int lanes, const CacheSizes& caches,
                   bool windows = false);

}  // namespace facula::schedule
