// How calls that draw random numbers behave under vmap.
#pragma once
#include <cstdint>

namespace facula::batch {

enum class Randomness : uint8_t { error, different, same };

}  // namespace facula::batch
