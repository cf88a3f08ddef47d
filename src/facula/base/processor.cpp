#include "facula/base/processor.h"

#include "facula/base/error.h"
#include "facula/base/settings.h"

namespace facula {

namespace {

int detect() {
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
  return avx512 && wish != "avx2" ? 64 : 32;
}

}  // namespace

int vector_bytes() {
  static const int bytes = detect();
  return bytes;
}

}  // namespace facula
