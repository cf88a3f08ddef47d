#include "facula/base/matrix_unit.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "facula/base/processor.h"
#include "facula/base/settings.h"

namespace facula {

namespace {

// Bits of EDX of leaf 7.
constexpr unsigned kBFloat16 = 1u << 22, kTiles = 1u << 24, kBytes = 1u << 25;

// Whether there are registers for tiles and products of this kind. The registers are large, so Linux gives them only to processes
// that ask.
bool detect_matrix_unit(unsigned product) {
  if (vector_bytes() < 64 || !settings().cpu_capability.empty() || settings().target != "llvm") return false;
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, a component of the state
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & product) == 0 || (d & kTiles) == 0) return false;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

bool has_matrix_unit() {
  static const bool has = detect_matrix_unit(kBFloat16);
  return has;
}
bool has_byte_matrix_unit() {
  static const bool has = detect_matrix_unit(kBytes);
  return has;
}

}  // namespace facula
