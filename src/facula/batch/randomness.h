// What a call that draws random numbers does inside of a batch (vmap).
#pragma once
#include <cstdint>

namespace facula::batch {

enum class Randomness : uint8_t { error, different, same };

}  // namespace facula::batch
