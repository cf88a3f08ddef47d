// The functions that nests printed as C call (c_printer.h), as text that is C99 and CUDA C; each one is the
// counterpart of a function of loop/number.cpp. FACULA_FUNCTION and FACULA_TABLE (the storage classes of functions
// and tables), FACULA_STATUS (the type of the failure report) and facula_fail(status, failed, index, size) have to be
// defined before.
#pragma once

namespace facula::codegen {

inline constexpr char kCPrelude[] = R"c(#define facula_inf_f32 ((float)INFINITY)
#define facula_inf_f64 ((double)INFINITY)
#define facula_nan_f32 ((float)NAN)
#define facula_nan_f64 ((double)NAN)
#define facula_any(c) (c)
#define FACULA_ROW(c) (c), (int)(sizeof(c) / sizeof(*(c)))
#define facula_at_least_1(n) ((n) > 0 ? (n) : 1)

FACULA_FUNCTION int64_t facula_check(int64_t i, int64_t n, int wraps, FACULA_STATUS s) {
  if (i >= (wraps ? -n : 0) && i < n) return i < 0 ? i + n : i;
  facula_fail(s, 1, i, n);
  return 0;
}
FACULA_FUNCTION int64_t facula_divisor(int64_t y, FACULA_STATUS s) {
  if (y) return y;
  facula_fail(s, 2, 0, 0);
  return 1;
}

/* Philox-4x32-10, word counter % 4 of block counter / 4. */
FACULA_FUNCTION int64_t facula_random(int64_t seed, int64_t counter) {
  uint64_t block = (uint64_t)counter / 4;
  uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
    c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
    c[1] = (uint32_t)b;
    c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
    c[3] = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c[(uint64_t)counter % 4];
}

union facula_bits32 {
  uint32_t u;
  int32_t i;
  float f;
};
union facula_bits64 {
  int64_t i;
  double f;
};
#define FACULA_BITS(T, s, I, i_, U)                                                                           \
  FACULA_FUNCTION I facula_bits_##s(T f) {                                                                    \
    union U x;                                                                                                \
    x.f = f;                                                                                                  \
    return x.i;                                                                                               \
  }                                                                                                           \
  FACULA_FUNCTION T facula_from_bits_##i_(I i) {                                                              \
    union U x;                                                                                                \
    x.i = i;                                                                                                  \
    return x.f;                                                                                               \
  }
FACULA_BITS(float, f32, int32_t, i32, facula_bits32)
FACULA_BITS(double, f64, int64_t, i64, facula_bits64)

/* ---- numbers of 16 bits */
FACULA_FUNCTION float facula_from_bfloat16(uint16_t h) {
  union facula_bits32 x;
  x.u = (uint32_t)h << 16;
  return x.f;
}
FACULA_FUNCTION uint16_t facula_to_bfloat16(float f) {
  union facula_bits32 x;
  x.f = f;
  if (f != f) return (uint16_t)(x.u >> 16 | 0x40);
  return (uint16_t)((x.u + 0x7fff + (x.u >> 16 & 1)) >> 16);
}
FACULA_FUNCTION float facula_from_half(uint16_t h) {
  union facula_bits32 x;
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 0) { /* a multiple of 2^-24 */
    x.f = (float)fraction * 0x1p-24f;
    x.u |= sign;
    return x.f;
  }
  if (exponent == 31) x.u = sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0);
  else x.u = sign | (exponent + 112) << 23 | fraction << 13;
  return x.f;
}
FACULA_FUNCTION uint16_t facula_to_half(float f) {
  union facula_bits32 x;
  x.f = f;
  uint32_t sign = x.u >> 16 & 0x8000, size = x.u & 0x7fffffff;
  if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
  if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 rounds to infinity */
  if (size < 0x38800000) { /* below 2^-14: a multiple of 2^-24, rounded to even by the addition */
    x.u = size;
    x.f += 0.5f;
    return (uint16_t)(sign | (x.u - 0x3f000000));
  }
  return (uint16_t)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
}

/* ---- numbers of 8 bits, as Float8Format::decode and encode; `infinity` is 256 where there is none */
FACULA_FUNCTION float facula_from_float8(uint8_t code, int mantissa, int bias, int nan, int is_signed, int infinity) {
  union facula_bits32 x;
  int magnitude = is_signed ? code & 0x7f : code;
  if (magnitude >= 1 << mantissa) x.u = ((uint32_t)magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
  else if (!is_signed) x.u = 0x400000;
  else x.f = (float)ldexp((double)magnitude, 1 - bias - mantissa);
  if (nan == 0x80 ? code == nan : magnitude >= nan || (magnitude > infinity)) x.u = 0x7fc00000;
  else if (magnitude == infinity) x.u = 0x7f800000;
  if (is_signed) x.u |= (uint32_t)(code & 0x80) << 24;
  return x.f;
}
FACULA_FUNCTION uint8_t facula_to_float8(float f, int mantissa, int bias, int largest, int too_large, int nan, int is_signed,
                                         int has_negative_zero) {
  union facula_bits32 x, sum, unit;
  uint32_t magnitude, sign, code;
  int shift = 23 - mantissa;
  x.f = f;
  magnitude = x.u & 0x7fffffff;
  sign = x.u >> 24 & 0x80;
  if (magnitude > 0x7f800000) return (uint8_t)(has_negative_zero ? sign | (uint32_t)nan : (uint32_t)nan);
  if (!is_signed) {
    code = (magnitude + 0x400000 - (magnitude < 0x800000)) >> 23;
    return (uint8_t)(code > (uint32_t)nan ? (uint32_t)nan : code);
  }
  if (magnitude < (uint32_t)(128 - bias) << 23) {
    unit.f = (float)ldexp(1.0, 24 - bias - mantissa);
    sum.u = magnitude;
    sum.f += unit.f;
    code = sum.u - unit.u;
  } else {
    code = (magnitude - ((uint32_t)(127 - bias) << 23) + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1)) >> shift;
  }
  if (code > (uint32_t)largest) code = (uint32_t)too_large;
  return (uint8_t)(has_negative_zero || (code && code != (uint32_t)nan) ? code | sign : code);
}

/* ---- to integers, as x86 converts: what does not fit becomes the smallest number, which is then cut */
FACULA_FUNCTION int64_t facula_to_int64(double v) {
  return fabs(v) < 0x1p63 ? (int64_t)v : INT64_MIN;
}
FACULA_FUNCTION int32_t facula_float_to_int32(float v) {
  return fabsf(v) < 0x1p31f ? (int32_t)v : INT32_MIN;
}
FACULA_FUNCTION int64_t facula_to_int32(double v) {
  return fabs(v) < 0x1p31 ? (int64_t)v : -INT64_C(2147483648);
}
FACULA_FUNCTION uint32_t facula_to_uint32(double v) {
  return v >= 0x1p31 ? (uint32_t)facula_to_int32(v - 0x1p31) ^ 0x80000000u : (uint32_t)facula_to_int32(v);
}
FACULA_FUNCTION uint64_t facula_to_uint64(double v) {
  return v >= 0x1p63 ? (uint64_t)facula_to_int64(v - 0x1p63) ^ (UINT64_C(1) << 63) : (uint64_t)facula_to_int64(v);
}

/* ---- integers */
#define FACULA_INTEGER(T, U, s)                                                                        \
  FACULA_FUNCTION T facula_truncdiv_##s(T x, T y) { return y == 0 ? 0 : y == -1 ? (T)(0 - (U)x) : x / y; } \
  FACULA_FUNCTION T facula_fmod_##s(T x, T y) { return y == 0 || y == -1 ? 0 : x % y; }                 \
  FACULA_FUNCTION T facula_floordiv_##s(T x, T y) {                                                     \
    T r = facula_fmod_##s(x, y);                                                                        \
    return facula_truncdiv_##s(x, y) - (r != 0 && (r ^ y) < 0);                                         \
  }                                                                                                     \
  FACULA_FUNCTION T facula_remainder_##s(T x, T y) {                                                    \
    T r = facula_fmod_##s(x, y);                                                                        \
    return r != 0 && (r ^ y) < 0 ? r + y : r;                                                           \
  }
FACULA_INTEGER(int64_t, uint64_t, i64)
FACULA_INTEGER(int32_t, uint32_t, i32)

FACULA_FUNCTION int64_t facula_pow_i64(int64_t x, int64_t n) {
  uint64_t result = 1, base = (uint64_t)x;
  if (n < 0) return x == 1 ? 1 : x == -1 ? (n & 1 ? -1 : 1) : 0;
  for (uint64_t k = (uint64_t)n; k; k >>= 1, base *= base)
    if (k & 1) result *= base;
  return (int64_t)result;
}
FACULA_FUNCTION int64_t facula_shl(int64_t x, int64_t y, int bits) {
  return y < 0 || y >= bits ? 0 : (int64_t)((uint64_t)x << y);
}
FACULA_FUNCTION int64_t facula_shr(int64_t x, int64_t y, int bits) {
  return y < 0 || y >= bits ? (x < 0 ? -1 : 0) : x >> y;
}
/* Of numbers of that many bits, of which the smallest has no absolute value. */
FACULA_FUNCTION int64_t facula_size(int64_t v, int bits) {
  uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
  return bits < 64 ? (int64_t)(u << (64 - bits)) >> (64 - bits) : (int64_t)u;
}
FACULA_FUNCTION int64_t facula_gcd(int64_t x, int64_t y, int bits) {
  x = facula_size(x, bits);
  y = facula_size(y, bits);
  while (x != 0) {
    int64_t r = facula_fmod_i64(y, x);
    y = x;
    x = r;
  }
  return y;
}
)c";

}  // namespace facula::codegen
