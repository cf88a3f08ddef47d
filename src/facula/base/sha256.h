// SHA-256 (FIPS 180-4): names and checksums of code that is kept on a disk. libcrypto computes it, with the
// processor's instructions for it where there are some.
#pragma once
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

namespace facula {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::initializer_list<std::string_view> parts);  // of the parts, one after the other
std::string hex(const Sha256& digest);                         // 64 digits

}  // namespace facula
