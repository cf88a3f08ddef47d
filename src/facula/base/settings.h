// Environment settings: declared here once, read once, and printed with their documentation by `python -m
// facula.info`.
//   FACULA_SETTINGS(_): _(name, environment variable, type, default, documentation)
#pragma once
#include <cstdint>
#include <string>

#ifndef FACULA_VERIFY_DEFAULT  // set by the build: on in debug builds
#define FACULA_VERIFY_DEFAULT false
#endif

namespace facula {

#define FACULA_SETTINGS(_)                                                                                          \
  _(log, "FACULA_LOG", std::string, "", "areas to log, with commas between; 'help' lists them")                      \
  _(cache_dir, "FACULA_CACHE_DIR", std::string, "", "folder of the kernel cache (default: the user's cache folder)") \
  _(cpu_capability, "FACULA_CPU_CAPABILITY", std::string, "", "highest instruction set to use: avx2 or avx512")     \
  _(target, "FACULA_TARGET", std::string, "llvm", "what makes kernels: llvm, or c99 (printed as C, by cc: slow, to read and to check), or cuda (likewise, as CUDA C)") \
  _(cuda_emulation, "FACULA_CUDA_EMULATION", std::string, "", "with FACULA_TARGET=cuda: a header that plays the GPU, for tests") \
  _(num_threads, "FACULA_NUM_THREADS", int64_t, 0, "threads of an operator (0: OMP_NUM_THREADS, else all cores)")    \
  _(verify, "FACULA_VERIFY", bool, FACULA_VERIFY_DEFAULT, "verify every intermediate representation between passes") \
  _(fuse, "FACULA_FUSE", bool, true, "run composites as fused programs (false: operator by operator)")              \
  _(libraries, "FACULA_LIBRARIES", bool, true, "run library operators by libraries (false: by their slow references)") \
  _(products, "FACULA_PRODUCTS", std::string, "", "what multiplies matrices: generated, tiles or library (default: the faster)") \
  _(retained_packs, "FACULA_RETAINED_PACKS", int64_t, 1024, "MiB of packed weights to retain between calls, never more than tensors have (0: none)") \
  _(shipped_cache, "FACULA_SHIPPED_CACHE", std::string, "", "folder of the kernel cache filled at build time")

struct Settings {
#define FACULA_FIELD(name, env, type, def, doc) type name = def;
  FACULA_SETTINGS(FACULA_FIELD)
#undef FACULA_FIELD
};
const Settings& settings();
Settings& mutable_settings();  // for tests

}  // namespace facula
