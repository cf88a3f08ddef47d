#include "facula/base/sha256.h"

// Uses the functions of one algorithm: the newer interface looks algorithms up by name, for which the whole library
// has to be loaded.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

namespace facula {

Sha256 sha256(std::initializer_list<std::string_view> parts) {
  SHA256_CTX context;
  SHA256_Init(&context);
  for (auto part : parts) SHA256_Update(&context, part.data(), part.size());
  Sha256 digest;
  SHA256_Final(digest.data(), &context);
  return digest;
}

std::string hex(const Sha256& digest) {
  std::string s;
  for (unsigned char c : digest) {
    s += "0123456789abcdef"[c >> 4];
    s += "0123456789abcdef"[c & 15];
  }
  return s;
}

}  // namespace facula
