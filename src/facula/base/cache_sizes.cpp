#include "facula/base/cache_sizes.h"

#include <unistd.h>

namespace facula {

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = [] {
    CacheSizes s;
    auto ask = [](int name, int64_t& size) {
      if (long bytes = sysconf(name); bytes > 0) size = bytes;
    };
    ask(_SC_LEVEL1_DCACHE_SIZE, s.first);
    ask(_SC_LEVEL2_CACHE_SIZE, s.second);
    return s;
  }();
  return sizes;
}

}  // namespace facula
