#include "facula/base/hash.h"

namespace facula {

uint64_t hash_bytes(const void* data, size_t n, uint64_t seed) {
  auto* p = static_cast<const unsigned char*>(data);
  uint64_t h = mix(seed, n);
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t w;
    std::memcpy(&w, p, 8);
    h = mix(h, w);
  }
  uint64_t tail = 0;
  if (n) std::memcpy(&tail, p, n);  // an empty range may have a null address
  return mix(h, tail);
}

}  // namespace facula
