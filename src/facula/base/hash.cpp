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
  std::memcpy(&tail, p, n);
  return mix(h, tail);
}

std::string digest(std::string_view text) {
  std::string out;
  for (uint64_t seed : {0x243f6a8885a308d3ull, 0x13198a2e03707344ull}) {
    uint64_t h = hash_of(text, seed);
    for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[h >> shift & 15];
  }
  return out;
}

}  // namespace facula
