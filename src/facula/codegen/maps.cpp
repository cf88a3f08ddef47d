#include "facula/codegen/maps.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "facula/codegen/kernel.h"
#include "facula/loop/expr.h"
#include "facula/loop/mapped.h"

// (libm's name, name)
#define FACULA_LIBM_MAPS(_) _(sin, far_sin) _(cos, far_cos) _(tan, far_tan)
// (Sleef's name, name)
#define FACULA_BINARY_MAPS(_) _(pow, any_pow) _(atan2, atan2)

#define FACULA_AVX2 __attribute__((target("avx2,fma")))
#define FACULA_AVX512 __attribute__((target("avx512f")))

// As sleef.h declares them where the compiler may use these vectors everywhere.
extern "C" {
#define FACULA_MAP(name, far)                            \
  FACULA_AVX2 __m256d Sleef_##name##d4_u10avx2(__m256d); \
  FACULA_AVX512 __m512d Sleef_##name##d8_u10avx512f(__m512d);
FACULA_UNARY_MAPS(FACULA_MAP)
#undef FACULA_MAP
#define FACULA_MAP(name, ...)                                     \
  FACULA_AVX2 __m256d Sleef_##name##d4_u10avx2(__m256d, __m256d); \
  FACULA_AVX512 __m512d Sleef_##name##d8_u10avx512f(__m512d, __m512d);
FACULA_BINARY_MAPS(FACULA_MAP)
#undef FACULA_MAP
}

namespace facula::codegen {
namespace {

using Map = void(double*, const double*, int64_t);

// Pieces of `lanes`; the last is padded with ones.
template <int lanes, class F>
inline void pieces(double* x, const double* y, int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(x + i, y + i);
  if (i == n) return;
  double a[lanes], b[lanes];
  std::fill_n(a, lanes, 1.0);
  std::fill_n(b, lanes, 1.0);
  std::copy(x + i, x + n, a);
  std::copy(y + i, y + n, b);
  f(a, b);
  std::copy(a, a + (n - i), x + i);
}

// The vectors for |x| in [0, far), libm beyond.
template <class Vector, class Libm>
inline void with_libm(double* x, int64_t n, double far, Vector&& vector, Libm&& libm) {
  constexpr int64_t kMost = 64;
  double kept[kMost];
  for (int64_t from = 0; from < n; from += kMost) {
    int64_t count = std::min<int64_t>(kMost, n - from);
    double* v = x + from;
    bool any_far = false;
    for (int64_t i = 0; i < count; ++i) any_far |= !(std::fabs(kept[i] = v[i]) < far);
    if (any_far)
      for (int64_t i = 0; i < count; ++i)
        if (!(std::fabs(v[i]) < far)) v[i] = 0;
    vector(v, count);
    if (any_far)
      for (int64_t i = 0; i < count; ++i)
        if (!(std::fabs(kept[i]) < far)) v[i] = libm(kept[i]);
  }
}

#define FACULA_MAP(name, far)                                                                                                   \
  FACULA_AVX2 void name##_avx2(double* x, int64_t n) {                                                                    \
    auto f = [](double* a, const double*) FACULA_AVX2 { _mm256_storeu_pd(a, Sleef_##name##d4_u10avx2(_mm256_loadu_pd(a))); };      \
    pieces<4>(x, x, n, f);                                                                                                \
  }                                                                                                                       \
  FACULA_AVX512 void name##_avx512(double* x, int64_t n) {                                                                \
    auto f = [](double* a, const double*) FACULA_AVX512 { _mm512_storeu_pd(a, Sleef_##name##d8_u10avx512f(_mm512_loadu_pd(a))); }; \
    pieces<8>(x, x, n, f);                                                                                                \
  }                                                                                                                       \
  void map_##name(double* x, const double*, int64_t n) {                                                                  \
    static const auto vector = vector_lanes() == 16 ? name##_avx512 : name##_avx2;                                        \
    with_libm(x, n, far, vector, [](double v) { return double(std::name(static_cast<long double>(v))); });                                                  \
  }
FACULA_UNARY_MAPS(FACULA_MAP)
#undef FACULA_MAP

#define FACULA_MAP(name, named)                                                                                           \
  FACULA_AVX2 void name##_avx2(double* x, const double* y, int64_t n) {                                                   \
    auto f = [](double* a, const double* b) FACULA_AVX2 {                                                                 \
      _mm256_storeu_pd(a, Sleef_##name##d4_u10avx2(_mm256_loadu_pd(a), _mm256_loadu_pd(b)));                              \
    };                                                                                                                    \
    pieces<4>(x, y, n, f);                                                                                                \
  }                                                                                                                       \
  FACULA_AVX512 void name##_avx512(double* x, const double* y, int64_t n) {                                               \
    auto f = [](double* a, const double* b) FACULA_AVX512 {                                                               \
      _mm512_storeu_pd(a, Sleef_##name##d8_u10avx512f(_mm512_loadu_pd(a), _mm512_loadu_pd(b)));                           \
    };                                                                                                                    \
    pieces<8>(x, y, n, f);                                                                                                \
  }                                                                                                                       \
  void map_##named(double* x, const double* y, int64_t n) {                                                               \
    static const auto vector = vector_lanes() == 16 ? name##_avx512 : name##_avx2;                                        \
    vector(x, y, n);                                                                                                      \
  }
FACULA_BINARY_MAPS(FACULA_MAP)
#undef FACULA_MAP

#define FACULA_MAP(name, named)                                                                   \
  void map_##named(double* x, const double*, int64_t n) {                                         \
    for (int64_t i = 0; i < n; ++i) x[i] = double(std::name(static_cast<long double>(x[i])));     \
  }
FACULA_LIBM_MAPS(FACULA_MAP)
#undef FACULA_MAP

#define FACULA_MAP(name, ...)                                                    \
  void map_##name(double* x, const double*, int64_t n) {                         \
    for (int64_t i = 0; i < n; ++i) x[i] = loop::mapped::name(x[i]);             \
  }
FACULA_MAPPED_UNARY(FACULA_MAP)
#undef FACULA_MAP
#define FACULA_MAP(name, ...)                                                    \
  void map_##name(double* x, const double* y, int64_t n) {                       \
    for (int64_t i = 0; i < n; ++i) x[i] = loop::mapped::name(x[i], y[i]);       \
  }
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
      FACULA_UNARY_MAPS(FACULA_MAP) FACULA_MAP(fmod) FACULA_MAPPED_UNARY(FACULA_MAP)
          FACULA_MAPPED_BINARY(FACULA_MAP)
#undef FACULA_MAP
#define FACULA_MAP(name, named) {"facula_map_" #named, map_##named},
              FACULA_LIBM_MAPS(FACULA_MAP) FACULA_BINARY_MAPS(FACULA_MAP)
#undef FACULA_MAP
  };
  for (auto& e : table)
    if (e.name == symbol) return reinterpret_cast<const void*>(e.map);
  return nullptr;
}

}  // namespace facula::codegen
