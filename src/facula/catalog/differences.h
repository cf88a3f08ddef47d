// Differences from PyTorch that several families share: where (the beginning of a line of tests/edges) and why.
#pragma once

namespace facula::catalog {

inline constexpr const char* kOverflows =
    "(float|bfloat|complex)\\w+ (value|value \\d|gradient of \\S+): (.*(nan|inf).* for .*|.* for .*(nan|inf).*|finite for -?0|"
    "-?0 for finite|-?\\d\\S*e\\+\\d+ for -?\\d\\S*e\\+\\d+) with \\S+: (max|lowest|all max|max and lowest)";
inline constexpr const char* kOrderOfSums =
    "sums of the largest numbers overflow; where depends on the order of additions, the library's own";

inline constexpr const char* kComplexProducts =
    "complex\\d+ (value|value \\d|gradient of \\S+): \\(.*(nan|inf).*\\) for \\(.*(nan|inf).*\\) "
    "with \\S+: (all )?(1|0|-?inf|-?nan|max|lowest)j? ?(and|at|in|#)";
inline constexpr const char* kPartsOfProducts =
    "which parts of a product are NaN if a factor is infinite depends on the real products that the library "
    "makes of it";

// Convolutions with NaN or an infinity in an image or a weight.
inline constexpr const char* kLibraryZeros =
    "(b?float|complex)\\d+ (value|gradient of (input|weight)): (nan for (finite|-?inf)|(finite|-?inf) for nan|"
    "\\(nan, nan\\) for \\(finite, finite\\)|\\(finite, finite\\) for \\(nan, nan\\)) "
    "with (input|weight): (all )?(1|-?inf|nan)j? (and|at|#)";
inline constexpr const char* kZerosBeside =
    "a library's kernel multiplies zeros around an image, between its pixels or beside a tile by what is not "
    "finite, or leaves them out, as shape and dtype make it choose; PyTorch's chooses otherwise";

// Elements of complex operators: no number in PyTorch, where ours has an infinite part or is a limit.
inline constexpr const char* kComplexInfinite =
    "complex\\d+ (value|gradient of \\S+): \\((-?inf, \\S+|\\S+, -?inf)\\) for \\(nan, nan\\) at";
inline constexpr const char* kComplexLimit =
    "complex\\d+ (value|gradient of \\S+): \\((finite|-?0), (finite|-?0)\\) for \\(nan, nan\\) at";
inline constexpr const char* kByParts =
    "PyTorch multiplies complex numbers part by part, where 0 times infinity is no number (C, annex G)";
// Zeros as a part, of the other sign.
inline constexpr const char* kComplexZeros =
    "complex\\d+ value: (\\(-?0, -?0\\) for \\(-?0, -?0\\)|\\(-?0, (finite|-?inf|nan)\\) for \\(-?0, \\2\\)|"
    "\\((finite|-?inf|nan), -?0\\) for \\(\\3, -?0\\)) at";
inline constexpr const char* kSignsOfZeros =
    "the sign of a part that is zero depends on the real operations that a complex one is made of";

// Gradients of 16-bit floats that neither overflow nor vanish on the way.
inline constexpr const char* kSteps16 = "b?float16 gradient of \\S+: (finite|-?0|-?inf|-?\\d\\S*) for";
inline constexpr const char* kRoundedOnce =
    "PyTorch rounds every step of a gradient to 16 bits, where it overflows or vanishes; the kernel rounds once";

inline constexpr const char* kCancelled =
    "1 - y * y and (1 - y) * y of a result y near 1 keep few digits, in PyTorch as here";

inline constexpr const char* kHugeOrder =
    "b?float16 error: RuntimeError .*`exponent.* for a result with (p|ord) is the number 1e\\+300";
inline constexpr const char* kOrderRefused =
    "an order that the dtype does not hold is refused, as pow refuses it";

}  // namespace facula::catalog
