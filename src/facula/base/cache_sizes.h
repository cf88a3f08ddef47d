// The caches of this processor, for blocks that should stay in them.
#pragma once
#include <cstdint>

namespace facula {

// Sizes in bytes of the data caches that a core reaches, as the system reports them; usual sizes where it does not.
struct CacheSizes {
  int64_t first = 32 << 10, second = 512 << 10;
};
const CacheSizes& cache_sizes();

}  // namespace facula
