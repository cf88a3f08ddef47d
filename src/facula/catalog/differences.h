// Differences from PyTorch that several families share: where (the beginning of a line of tests/edges) and why.
#pragma once

namespace facula::catalog {

inline constexpr const char* kOverflows =
    "(float|bfloat|complex)\\w+ (value|gradient of \\S+): .* with \\S+: (max|lowest|all max|max and lowest)";
inline constexpr const char* kOrderOfSums =
    "sums of the largest numbers overflow; where depends on the order of additions, the library's own";

inline constexpr const char* kComplexProducts =
    "complex\\d+ (value|gradient of \\S+): \\(.*(nan|inf).*\\) for \\(.*(nan|inf).*\\) with";
inline constexpr const char* kPartsOfProducts =
    "which parts of a product are NaN if a factor is infinite depends on the real products that the library "
    "makes of it";

}  // namespace facula::catalog
