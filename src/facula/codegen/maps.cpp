#include "facula/codegen/maps.h"

#include <cmath>
#include <cstdint>

#include "facula/codegen/kernel.h"
#include "facula/loop/expr.h"
#include "facula/loop/mapped.h"

// (libm's name, name)
#define FACULA_LIBM_MAPS(_) _(sin, far_sin) _(cos, far_cos) _(tan, far_tan)

namespace facula::codegen {
namespace {

using Map = void(double*, const double*, int64_t);

#define FACULA_MAP(name, named)                                                               \
  void map_##named(double* x, const double*, int64_t n) {                                     \
    for (int64_t i = 0; i < n; ++i) x[i] = double(std::name(static_cast<long double>(x[i]))); \
  }
FACULA_LIBM_MAPS(FACULA_MAP)
#undef FACULA_MAP

// True for kernels with AVX-512, except for vectors with less than eight doubles.
bool takes_wide(int64_t n) { return vector_lanes() == 16 && n % 8 == 0; }
#define FACULA_MAP(name, ...)                                              \
  void map_##name(double* x, const double* y, int64_t n) {                 \
    (takes_wide(n) ? loop::mapped::wide::name : static_cast<Map*>(loop::mapped::name))(x, y, n); \
  }
FACULA_MAPPED_UNARY(FACULA_MAP)
FACULA_MAPPED_BINARY(FACULA_MAP)
#undef FACULA_MAP

void map_fmod(double* x, const double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = std::fmod(x[i], y[i]);
}

}  // namespace

const void* map_named(std::string_view symbol) {
  struct Entry {
    std::string_view name;
    Map* map;
  };
  static const Entry table[] = {
#define FACULA_MAP(name, ...) {"facula_map_" #name, map_##name},
      FACULA_MAP(fmod) FACULA_MAPPED_UNARY(FACULA_MAP) FACULA_MAPPED_BINARY(FACULA_MAP)
#undef FACULA_MAP
#define FACULA_MAP(name, named) {"facula_map_" #named, map_##named},
          FACULA_LIBM_MAPS(FACULA_MAP)
#undef FACULA_MAP
  };
  for (auto& e : table)
    if (e.name == symbol) return reinterpret_cast<const void*>(e.map);
  return nullptr;
}

}  // namespace facula::codegen
