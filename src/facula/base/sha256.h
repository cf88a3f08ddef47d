// SHA-256 (FIPS 180-4), for names and checksums of code that is stored on disk. libcrypto computes it, by
// instructions of the processor if it has any.
#pragma once
#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

namespace facula {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::initializer_list<std::string_view> parts);  // of the concatenated parts
std::string hex(const Sha256& digest);                         // 64 digits

}  // namespace facula
