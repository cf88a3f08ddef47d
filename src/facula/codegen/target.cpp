#include "facula/base/error.h"
#include "facula/base/settings.h"
#include "facula/codegen/kernel.h"

namespace facula::codegen {
namespace {
struct Target {
  loop::LaneLimits limits;
  std::string features;
  bool gathers = false;
};

Target detect() {
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const std::string& wish = settings().cpu_capability;
  runtime_check(wish.empty() || wish == "avx2" || wish == "avx512", "codegen")
      << "FACULA_CPU_CAPABILITY is \"" << wish << "\""
      << hint("it may be avx2 or avx512; unset it to use the best there is");
  runtime_check(avx2, "codegen")
      << "this processor lacks AVX2, FMA, F16C or BMI2, which generated kernels need"
      << hint("x86-64 processors since 2013 (Intel) and 2015 (AMD) have them");
  runtime_check(wish != "avx512" || avx512, "codegen")
      << "FACULA_CPU_CAPABILITY asks for avx512, but this processor lacks AVX-512 F, BW, DQ or VL";
  std::string common = "x86-64+avx+avx2+fma+f16c+bmi+bmi2+lzcnt+popcnt";
  // On other processors gathers are split into loads, or slowed down against "Downfall" (CVE-2022-40982).
  bool gathers = __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512fp16");
  if (avx512 && wish != "avx2")
    return {{.lanes = 16}, common + "+avx512f+avx512bw+avx512dq+avx512vl", gathers};
  return {{.lanes = 8}, common};
}
const Target& target() {
  static const Target& t = *new Target(detect());  // threads may ask while the process ends
  return t;
}
}  // namespace

int vector_lanes() { return lane_limits().lanes; }
const loop::LaneLimits& lane_limits() { return target().limits; }
std::string target_features() { return target().features; }
bool gathers_are_quick() { return target().gathers; }

}  // namespace facula::codegen
