// C99 functions for convolutions of 8-bit integers, forward and backward, as text (embed/c_functions.h). Tensors are NHWC. Sums of
// integers are exact, so the order of additions is free; sums of floats have one order, so every machine computes the same bits.
#pragma once

namespace facula::embed {

// One function, which is printed if code or a later function of the table calls it.
struct CText {
  const char* name;
  const char* text;
};

// A function follows those that it calls.
inline constexpr CText kInt8Functions[] = {
    {"FACULA_INLINE", R"c(
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the code needs a little-endian machine"
#endif
#if defined(__GNUC__)
#define FACULA_INLINE static inline __attribute__((always_inline))
#else
#define FACULA_INLINE static inline
#endif
/* Pairs of 16-bit integers in a word have instructions of their own. */
#if defined(__ARM_FEATURE_DSP) && defined(__ARM_ARCH) && __ARM_ARCH_PROFILE == 'M'
#define FACULA_DSP 1
#endif
#if defined(__AVX2__) || defined(__AVX512F__) || defined(__aarch64__) || defined(__ARM_NEON)
#define FACULA_VECTORS 1
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define FACULA_UNROLL _Pragma("GCC unroll 8")
#define FACULA_TWICE _Pragma("GCC unroll 2")
#else
#define FACULA_UNROLL
#define FACULA_TWICE
#endif
struct facula_window {
  int32_t height, width, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, pad_y, pad_x, step_y, step_x;
};
)c"},
    {"facula_dot2", R"c(
#ifdef FACULA_DSP
static inline uint32_t facula_even(uint32_t bytes) {
  uint32_t pair;
  __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(bytes));
  return pair;
}
static inline uint32_t facula_odd(uint32_t bytes) {
  uint32_t pair;
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(bytes));
  return pair;
}
static inline uint32_t facula_sub2(uint32_t a, uint32_t b) {
  uint32_t pair;
  __asm__("ssub16 %0, %1, %2" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}
static inline int32_t facula_dot2(uint32_t a, uint32_t b, int32_t sum) {
  __asm__ volatile("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(a), "r"(b)); /* volatile: in this order, which takes the least registers */
  return sum;
}
#endif
)c"},
    {"facula_load4", R"c(
static inline uint32_t facula_load4(const int8_t* from) {
  uint32_t word;
  memcpy(&word, from, 4);
  return word;
}
/* The first `count` < 4 bytes, and `fill` behind them. */
static inline uint32_t facula_load_part(const int8_t* from, int32_t count, int32_t fill) {
  uint32_t word = 0;
  for (int32_t i = 0; i < 4; ++i) word |= ((uint32_t)(i < count ? from[i] : fill) & 0xffu) << (8 * i);
  return word;
}
)c"},
    {"facula_round8", R"c(
/* sum * scale + bias plus the zero point, rounded to even and saturated. */
#if defined(FACULA_DSP) && defined(__ARM_FP)
static inline int8_t facula_round8(int32_t sum, float scale, float bias, int32_t zero) {
  float value = (float)sum * scale;
  int32_t steps;
  value = value + bias;
  value = value + (float)zero;
  __asm__("vcvtr.s32.f32 %0, %1" : "=t"(steps) : "t"(value));
  __asm__("ssat %0, #8, %1" : "=r"(steps) : "r"(steps));
  return (int8_t)steps;
}
#else /* adding 1.5 * 2^23 rounds: the last bits of the sum are the integer */
static inline int8_t facula_round8(int32_t sum, float scale, float bias, int32_t zero) {
  union facula_bits32 bits;
  float value = (float)sum * scale;
  value = value + bias;
  value = value + (float)zero;
  value = value > -512.0f ? value < 512.0f ? value : 512.0f : -512.0f;
  bits.f = value + 12582912.0f;
  const int32_t steps = bits.i - 0x4b400000;
  return (int8_t)(steps < -128 ? -128 : steps > 127 ? 127 : steps);
}
#endif
)c"},
    {"facula_int8_rows", R"c(
#ifdef FACULA_DSP
/* Two rows of bytes as 16-bit integers less `zero`: for every four bytes the pairs (0, 2) and (1, 3) of row a, then of row b. */
FACULA_KERNEL void facula_widen_rows(const int8_t* a, const int8_t* b, int32_t k, int32_t zero, uint32_t* to) {
  const uint32_t zeros = ((uint32_t)zero & 0xffffu) * 0x10001u;
  for (; k >= 4; k -= 4) {
    const uint32_t x = facula_load4(a), y = facula_load4(b);
    to[0] = facula_sub2(facula_even(x), zeros);
    to[1] = facula_sub2(facula_odd(x), zeros);
    to[2] = facula_sub2(facula_even(y), zeros);
    to[3] = facula_sub2(facula_odd(y), zeros);
    to += 4;
    a += 4;
    b += 4;
  }
  if (k) {
    const uint32_t x = facula_load_part(a, k, zero), y = facula_load_part(b, k, zero);
    to[0] = facula_sub2(facula_even(x), zeros);
    to[1] = facula_sub2(facula_odd(x), zeros);
    to[2] = facula_sub2(facula_even(y), zeros);
    to[3] = facula_sub2(facula_odd(y), zeros);
  }
}
/* Four bytes of two rows of weights times those of the two widened rows. */
#define FACULA_FOUR(word0, word1)                                      \
  {                                                                    \
    uint32_t w0 = word0;                                               \
    const uint32_t xe = x[0], xo = x[1], ye = x[2], yo = x[3];         \
    uint32_t even = facula_even(w0);                                   \
    w0 = facula_odd(w0);                                               \
    a0 = facula_dot2(w0, xo, facula_dot2(even, xe, a0));               \
    b0 = facula_dot2(w0, yo, facula_dot2(even, ye, b0));               \
    w0 = word1;                                                        \
    even = facula_even(w0);                                            \
    w0 = facula_odd(w0);                                               \
    a1 = facula_dot2(w0, xo, facula_dot2(even, xe, a1));               \
    b1 = facula_dot2(w0, yo, facula_dot2(even, ye, b1));               \
    x += 4;                                                            \
  }
/* The same twice, in an order that needs 13 registers; compilers use more, and spill. */
#define FACULA_FOUR_TEXT                                                                          \
  "ldr %[w], [%[p0]], #4\n ldrd %[xe], %[xo], [%[x]], #8\n ldrd %[ye], %[yo], [%[x]], #8\n"       \
  "sxtb16 %[e], %[w]\n sxtb16 %[w], %[w], ror #8\n"                                               \
  "smlad %[a0], %[e], %[xe], %[a0]\n smlad %[b0], %[e], %[ye], %[b0]\n"                           \
  "smlad %[a0], %[w], %[xo], %[a0]\n smlad %[b0], %[w], %[yo], %[b0]\n"                           \
  "ldr %[w], [%[p1]], #4\n sxtb16 %[e], %[w]\n sxtb16 %[w], %[w], ror #8\n"                       \
  "smlad %[a1], %[e], %[xe], %[a1]\n smlad %[b1], %[e], %[ye], %[b1]\n"                           \
  "smlad %[a1], %[w], %[xo], %[a1]\n smlad %[b1], %[w], %[yo], %[b1]\n"
#define FACULA_EIGHT                                                                              \
  {                                                                                               \
    uint32_t t0, t1, t2, t3, t4, t5;                                                              \
    __asm__(FACULA_FOUR_TEXT FACULA_FOUR_TEXT                                                     \
            : [a0] "+r"(a0), [a1] "+r"(a1), [b0] "+r"(b0), [b1] "+r"(b1), [x] "+r"(x), [p0] "+r"(p0), [p1] "+r"(p1), \
              [w] "=&r"(t0), [e] "=&r"(t1), [xe] "=&r"(t2), [xo] "=&r"(t3), [ye] "=&r"(t4), [yo] "=&r"(t5)           \
            :                                                                                     \
            : "memory");                                                                          \
  }
/* Products of two widened rows with n rows of weights, rounded to bytes: n bytes at ya and at yb. */
FACULA_KERNEL void facula_int8_rows(const uint32_t* rows, int32_t k, const int8_t* w, int32_t n, const float* scale, const float* bias,
                             int32_t zero, int8_t* ya, int8_t* yb) {
  const uint32_t* const end = rows + k / 8 * 8;
  const int32_t rest = k & 3;
  for (int32_t i = 0; i < n; i += 2) {
    const int8_t *p0 = w, *p1 = i + 1 < n ? w + k : w;
    const uint32_t* x = rows;
    int32_t a0 = 0, a1 = 0, b0 = 0, b1 = 0;
    while (x != end) FACULA_EIGHT
    if (k & 4) {
      FACULA_FOUR(facula_load4(p0), facula_load4(p1))
      p0 += 4;
      p1 += 4;
    }
    if (rest && i + 2 < n) FACULA_FOUR(facula_load4(p0), facula_load4(p1)) /* times zeros behind the row */
    else if (rest) FACULA_FOUR(facula_load_part(p0, rest, 0), facula_load_part(p1, rest, 0))
    const float scale0 = scale[i], bias0 = bias[i]; /* before the stores, which may change any memory for a compiler */
    if (i + 1 < n) {
      const float scale1 = scale[i + 1], bias1 = bias[i + 1];
      ya[i] = facula_round8(a0, scale0, bias0, zero);
      yb[i] = facula_round8(b0, scale0, bias0, zero);
      ya[i + 1] = facula_round8(a1, scale1, bias1, zero);
      yb[i + 1] = facula_round8(b1, scale1, bias1, zero);
    } else {
      ya[i] = facula_round8(a0, scale0, bias0, zero);
      yb[i] = facula_round8(b0, scale0, bias0, zero);
    }
    w += 2 * k;
  }
}
#else
/* Two rows of bytes as 16-bit integers less `zero`, one behind the other. */
FACULA_KERNEL void facula_widen_rows(const int8_t* a, const int8_t* b, int32_t k, int32_t zero, uint32_t* to) {
  int16_t *const x = (int16_t*)to, *const y = x + (k + 3) / 4 * 4;
  for (int32_t i = 0; i < k; ++i) {
    x[i] = (int16_t)(a[i] - zero);
    y[i] = (int16_t)(b[i] - zero);
  }
}
FACULA_KERNEL void facula_int8_rows(const uint32_t* rows, int32_t k, const int8_t* w, int32_t n, const float* scale, const float* bias,
                             int32_t zero, int8_t* ya, int8_t* yb) {
  const int16_t *const x = (const int16_t*)rows, *const y = x + (k + 3) / 4 * 4;
  for (int32_t i = 0; i < n; i += 2) {
    const int8_t *const p0 = w, *const p1 = i + 1 < n ? w + k : w;
    int32_t a0 = 0, a1 = 0, b0 = 0, b1 = 0;
    for (int32_t j = 0; j < k; ++j) {
      const int32_t w0 = p0[j], w1 = p1[j], s = x[j], t = y[j];
      a0 += w0 * s;
      a1 += w1 * s;
      b0 += w0 * t;
      b1 += w1 * t;
    }
    ya[i] = facula_round8(a0, scale[i], bias[i], zero);
    yb[i] = facula_round8(b0, scale[i], bias[i], zero);
    if (i + 1 < n) {
      ya[i + 1] = facula_round8(a1, scale[i + 1], bias[i + 1], zero);
      yb[i + 1] = facula_round8(b1, scale[i + 1], bias[i + 1], zero);
    }
    w += 2 * k;
  }
}
#endif
)c"},
    {"facula_int8_rectify", R"c(
FACULA_KERNEL void facula_int8_rectify(int8_t* y, int32_t count, int32_t zero) {
  for (int32_t i = 0; i < count; ++i)
    if (y[i] < zero) y[i] = (int8_t)zero;
}
)c"},
    {"facula_int8_pointwise", R"c(
/* A convolution of kernel size 1 on `pixels` rows of k bytes, to rows of n bytes. */
FACULA_KERNEL void facula_int8_pointwise(const int8_t* x, const int8_t* w, const float* scale, const float* bias, int8_t* y, int32_t pixels,
                                  int32_t k, int32_t n, int32_t zero_x, int32_t zero_y, uint32_t* rows) {
  for (int32_t p = 0; p < pixels; p += 2) {
    const int32_t next = p + 1 < pixels ? 1 : 0;
    facula_widen_rows(x, x + next * k, k, zero_x, rows);
    facula_int8_rows(rows, k, w, n, scale, bias, zero_y, y, y + next * n);
    x += 2 * k;
    y += 2 * n;
  }
}
)c"},
    {"facula_int8_conv", R"c(
/* Positions of the bytes that a window reads, in the order of the weights: channel, y, x. */
static void facula_offsets(int32_t channels, const struct facula_window* s, int32_t* to) {
  for (int32_t c = 0; c < channels; ++c)
    for (int32_t ky = 0; ky < s->kernel_height; ++ky)
      for (int32_t kx = 0; kx < s->kernel_width; ++kx) *to++ = (ky * s->step_y * s->width + kx * s->step_x) * channels + c;
}
/* The bytes that the window of one output reads. */
static void facula_gather(const int8_t* x, int32_t channels, const struct facula_window* s, int32_t oy, int32_t ox, int32_t zero,
                          const int32_t* offsets, int8_t* to) {
  const int32_t y = oy * s->stride_y - s->pad_y, left = ox * s->stride_x - s->pad_x, area = s->kernel_height * s->kernel_width;
  if (y >= 0 && left >= 0 && y + (s->kernel_height - 1) * s->step_y < s->height && left + (s->kernel_width - 1) * s->step_x < s->width) {
    const int8_t* from = x + (y * s->width + left) * channels;
    for (int32_t i = 0; i < channels * area; ++i) to[i] = from[offsets[i]];
    return;
  }
  for (int32_t c = 0; c < channels; ++c)
    for (int32_t ky = 0; ky < s->kernel_height; ++ky)
      for (int32_t kx = 0; kx < s->kernel_width; ++kx) {
        const int32_t iy = y + ky * s->step_y, ix = left + kx * s->step_x;
        const int inside = iy >= 0 && iy < s->height && ix >= 0 && ix < s->width;
        *to++ = inside ? x[(iy * s->width + ix) * channels + c] : (int8_t)zero;
      }
}
/* A convolution without groups of one image. `planar`: the result is NCHW. */
FACULA_KERNEL void facula_int8_conv(const int8_t* x, const int8_t* w, const float* scale, const float* bias, int8_t* y, int32_t channels,
                             int32_t n, const struct facula_window* s, int32_t zero_x, int32_t zero_y, int32_t planar, uint32_t* rows) {
  const int32_t k = channels * s->kernel_height * s->kernel_width, pixels = s->out_height * s->out_width;
  int32_t* const offsets = (int32_t*)(rows + (k + 3) / 4 * 4);
  int8_t* const bytes = (int8_t*)(offsets + k);
  facula_offsets(channels, s, offsets);
  for (int32_t p = 0; p < pixels; p += 2) {
    const int32_t q = p + 1 < pixels ? p + 1 : p;
    facula_gather(x, channels, s, p / s->out_width, p % s->out_width, zero_x, offsets, bytes);
    facula_gather(x, channels, s, q / s->out_width, q % s->out_width, zero_x, offsets, bytes + k);
    facula_widen_rows(bytes, bytes + k, k, zero_x, rows);
    if (planar) {
      int8_t* const pair = bytes + 2 * k;
      facula_int8_rows(rows, k, w, n, scale, bias, zero_y, pair, pair + n);
      for (int32_t i = 0; i < n; ++i) {
        y[i * pixels + p] = pair[i];
        y[i * pixels + q] = pair[n + i];
      }
    } else {
      facula_int8_rows(rows, k, w, n, scale, bias, zero_y, y + p * n, y + q * n);
    }
  }
}
)c"},
    {"facula_int8_depthwise", R"c(
struct facula_row {
  int32_t words, width, zero, step;
  float scale, bias;
};
#ifdef FACULA_DSP
/* One row of outputs of one channel. `x`: the first word of the padded rows, of `words` words each; `w`: for each row of the kernel
   `half` words of weights for outputs at even positions, then `half` words for odd ones. Outputs are `step` bytes apart. */
FACULA_INLINE void facula_depthwise_row(const uint32_t* x, const uint32_t* w, const struct facula_row* s, int8_t* y, int32_t kernel,
                                        int32_t half, int32_t stride) {
  const int32_t words = s->words, step = s->step, zero = s->zero;
  const float scale = s->scale, bias = s->bias;
  for (int32_t left = s->width; left > 0; left -= 4) {
    int32_t a = 0, b = 0, c = 0, d = 0;
    const uint32_t *row = x, *v = w;
    FACULA_UNROLL
    for (int32_t ky = 0; ky < kernel; ++ky) {
      FACULA_UNROLL
      for (int32_t j = 0; j < half; ++j) {
        const uint32_t even = v[j];
        if (stride == 1) {
          const uint32_t odd = v[half + j], first = row[j], second = row[j + 1];
          a = facula_dot2(first, even, a);
          b = facula_dot2(first, odd, b);
          c = facula_dot2(second, even, c);
          d = facula_dot2(second, odd, d);
        } else {
          a = facula_dot2(row[j], even, a);
          b = facula_dot2(row[j + 1], even, b);
          c = facula_dot2(row[j + 2], even, c);
          d = facula_dot2(row[j + 3], even, d);
        }
      }
      row += words;
      v += 2 * half;
    }
    *y = facula_round8(a, scale, bias, zero);
    if (left > 1) y[step] = facula_round8(b, scale, bias, zero);
    if (left > 2) y[2 * step] = facula_round8(c, scale, bias, zero);
    if (left > 3) y[3 * step] = facula_round8(d, scale, bias, zero);
    x += 2 * stride;
    y += 4 * step;
  }
}
#define FACULA_DEPTHWISE(kernel, stride)                                                                              \
  FACULA_KERNEL void facula_depthwise_row_##kernel##_##stride(const uint32_t* x, const uint32_t* w, const struct facula_row* s, \
                                                              int8_t* y) {                                            \
    facula_depthwise_row(x, w, s, y, kernel, (kernel + 1) / 2, stride);                                               \
  }
FACULA_DEPTHWISE(3, 1)
FACULA_DEPTHWISE(3, 2)
FACULA_DEPTHWISE(5, 1)
FACULA_DEPTHWISE(5, 2)
FACULA_DEPTHWISE(7, 1)
FACULA_DEPTHWISE(7, 2)
FACULA_KERNEL void facula_depthwise_any_row(const uint32_t* x, const uint32_t* w, const struct facula_row* s, int8_t* y, int32_t kernel,
                                            int32_t stride) {
  switch (kernel * 2 + stride) {
    case 7: facula_depthwise_row_3_1(x, w, s, y); return;
    case 8: facula_depthwise_row_3_2(x, w, s, y); return;
    case 11: facula_depthwise_row_5_1(x, w, s, y); return;
    case 12: facula_depthwise_row_5_2(x, w, s, y); return;
    case 15: facula_depthwise_row_7_1(x, w, s, y); return;
    case 16: facula_depthwise_row_7_2(x, w, s, y); return;
    default: facula_depthwise_row(x, w, s, y, kernel, (kernel + 1) / 2, stride);
  }
}
/* The weights of one channel as pairs: for each row those for even positions, then those for odd ones. */
static void facula_depthwise_weights(const int8_t* w, int32_t kernel, uint32_t* to) {
  const int32_t half = (kernel + 1) / 2;
  for (int32_t ky = 0; ky < kernel; ++ky) {
    for (int32_t odd = 0; odd < 2; ++odd)
      for (int32_t j = 0; j < half; ++j) {
        const int32_t i = 2 * j - odd;
        const uint32_t low = i >= 0 && i < kernel ? (uint32_t)w[i] & 0xffffu : 0u;
        const uint32_t high = i + 1 < kernel ? (uint32_t)w[i + 1] << 16 : 0u;
        *to++ = low | high;
      }
    w += kernel;
  }
}
#else
/* `count` outputs of one channel from the padded rows on, `width` numbers each. */
FACULA_INLINE void facula_depthwise_some(const int16_t* x, int32_t width, const int8_t* w, const struct facula_row* s, int8_t* y, int32_t kernel,
                                         int32_t stride, int32_t count, int32_t used) {
  int32_t sums[16] = {0};
  for (int32_t ky = 0; ky < kernel; ++ky)
    for (int32_t kx = 0; kx < kernel; ++kx) {
      const int32_t v = w[ky * kernel + kx];
      const int16_t* const from = x + ky * width + kx;
      FACULA_UNROLL
      for (int32_t j = 0; j < count; ++j) sums[j] += from[j * stride] * v;
    }
  for (int32_t j = 0; j < used; ++j) y[j * s->step] = facula_round8(sums[j], s->scale, s->bias, s->zero);
}
FACULA_KERNEL void facula_depthwise_any_row(const uint32_t* padded, const int8_t* w, const struct facula_row* s, int8_t* y, int32_t kernel,
                                            int32_t stride) {
  const int16_t* x = (const int16_t*)padded;
  int32_t left = s->width;
#ifdef FACULA_VECTORS
  for (; left >= 16; left -= 16) {
    if (stride == 1)
      facula_depthwise_some(x, 2 * s->words, w, s, y, kernel, 1, 16, 16);
    else
      facula_depthwise_some(x, 2 * s->words, w, s, y, kernel, 2, 16, 16);
    x += 16 * stride;
    y += 16 * s->step;
  }
#endif
  for (; left > 0; left -= 4) {
    const int32_t used = left < 4 ? left : 4;
    if (stride == 1)
      facula_depthwise_some(x, 2 * s->words, w, s, y, kernel, 1, 4, used);
    else
      facula_depthwise_some(x, 2 * s->words, w, s, y, kernel, 2, 4, used);
    x += 4 * stride;
    y += 4 * s->step;
  }
}
#endif
/* A depthwise convolution of one image with a square kernel of odd size and stride 1 or 2. y may be x: each channel is copied to
   padded rows before it is written. */
FACULA_KERNEL void facula_int8_depthwise(const int8_t* x, const int8_t* w, const float* scale, const float* bias, int8_t* y, int32_t channels,
                                  int32_t height, int32_t width, int32_t out_height, int32_t out_width, int32_t kernel, int32_t stride,
                                  int32_t pad_y, int32_t pad_x, int32_t zero_x, int32_t zero_y, uint32_t* scratch) {
  const int32_t half = (kernel + 1) / 2;
  const int32_t words = ((out_width + 3) / 4 * 4 - 4) * stride / 2 + half + 3, rows = (out_height - 1) * stride + kernel;
  uint32_t* const padded = scratch + 2 * half * kernel;
  const int32_t used_rows = rows - pad_y < height ? rows - pad_y : height;
  const int32_t used_columns = 2 * words - pad_x < width ? 2 * words - pad_x : width;
  for (int32_t i = 0; i < words * rows; ++i) padded[i] = 0;
  for (int32_t c = 0; c < channels; ++c) {
#ifdef FACULA_DSP
    const uint32_t* const taps = scratch;
    facula_depthwise_weights(w + c * kernel * kernel, kernel, scratch);
#else
    const int8_t* const taps = w + c * kernel * kernel;
#endif
    for (int32_t iy = 0; iy < used_rows; ++iy) {
      int16_t* to = (int16_t*)(padded + (iy + pad_y) * words) + pad_x;
      const int8_t* from = x + iy * width * channels + c;
      int32_t ix = used_columns;
      for (; ix >= 4; ix -= 4) {
        const int32_t p = from[0], q = from[channels], r = from[2 * channels], t = from[3 * channels];
        to[0] = (int16_t)(p - zero_x);
        to[1] = (int16_t)(q - zero_x);
        to[2] = (int16_t)(r - zero_x);
        to[3] = (int16_t)(t - zero_x);
        from += 4 * channels;
        to += 4;
      }
      for (; ix > 0; --ix) {
        *to++ = (int16_t)(*from - zero_x);
        from += channels;
      }
    }
    const struct facula_row s = {words, out_width, zero_y, channels, scale[c], bias[c]};
    for (int32_t oy = 0; oy < out_height; ++oy)
      facula_depthwise_any_row(padded + oy * stride * words, taps, &s, y + oy * out_width * channels + c, kernel, stride);
  }
}
)c"},
    {"facula_pointwise_backward", R"c(
/* The gradient of a convolution of kernel size 1 for its input: rows of n floats times n rows of k weights. `part`: 8 n floats. */
#if defined(FACULA_DSP) && defined(__ARM_FP)
/* Two rows of n floats times n rows of 8 weights: 8 floats at `first` and at `second`. */
FACULA_KERNEL void facula_two_by_eight(const float* g0, const float* g1, const float* w, int32_t n, float* first, float* second) {
  __asm__ volatile(
      "vmov s0, %[zero]\n vmov s1, %[zero]\n vmov s2, %[zero]\n vmov s3, %[zero]\n"
      "vmov s4, %[zero]\n vmov s5, %[zero]\n vmov s6, %[zero]\n vmov s7, %[zero]\n"
      "vmov s8, %[zero]\n vmov s9, %[zero]\n vmov s10, %[zero]\n vmov s11, %[zero]\n"
      "vmov s12, %[zero]\n vmov s13, %[zero]\n vmov s14, %[zero]\n vmov s15, %[zero]\n"
      "1:\n vldmia %[w]!, {s16-s23}\n vldmia %[g0]!, {s24}\n vldmia %[g1]!, {s25}\n"
      "vfma.f32 s0, s16, s24\n vfma.f32 s1, s17, s24\n"
      "vfma.f32 s2, s18, s24\n vfma.f32 s3, s19, s24\n"
      "vfma.f32 s4, s20, s24\n vfma.f32 s5, s21, s24\n"
      "vfma.f32 s6, s22, s24\n vfma.f32 s7, s23, s24\n"
      "vfma.f32 s8, s16, s25\n vfma.f32 s9, s17, s25\n"
      "vfma.f32 s10, s18, s25\n vfma.f32 s11, s19, s25\n"
      "vfma.f32 s12, s20, s25\n vfma.f32 s13, s21, s25\n"
      "vfma.f32 s14, s22, s25\n vfma.f32 s15, s23, s25\n"
      "subs %[n], %[n], #1\n bne 1b\n"
      "vstmia %[first], {s0-s7}\n vstmia %[second], {s8-s15}\n"
      : [g0] "+r"(g0), [g1] "+r"(g1), [w] "+r"(w), [n] "+r"(n)
      : [first] "r"(first), [second] "r"(second), [zero] "r"(0)
      : "cc", "memory", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12",
        "s13", "s14", "s15", "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25");
}
FACULA_KERNEL void facula_pointwise_backward(const float* grad, const int8_t* w, float* dx, int32_t pixels, int32_t n, int32_t k, float* part) {
  for (int32_t i = 0; i < k; i += 8) {
    const int32_t count = k - i < 8 ? k - i : 8;
    const int8_t* from = w + i;
    float* to = part;
    for (int32_t o = 0; o < n; ++o) {
      if (count == 8)
        for (int32_t j = 0; j < 8; ++j) to[j] = (float)from[j];
      else
        for (int32_t j = 0; j < 8; ++j) to[j] = j < count ? (float)from[j] : 0.0f;
      to += 8;
      from += k;
    }
    for (int32_t p = 0; p < pixels; p += 2) {
      const int32_t q = p + 1 < pixels ? p + 1 : p;
      float *const first = dx + p * k + i, *const second = dx + q * k + i;
      if (count == 8) {
        facula_two_by_eight(grad + p * n, grad + q * n, part, n, first, second);
      } else {
        float sums[16];
        facula_two_by_eight(grad + p * n, grad + q * n, part, n, sums, sums + 8);
        for (int32_t j = 0; j < count; ++j) {
          first[j] = sums[j];
          second[j] = sums[8 + j];
        }
      }
    }
  }
}
#else
FACULA_KERNEL void facula_pointwise_backward(const float* grad, const int8_t* w, float* dx, int32_t pixels, int32_t n, int32_t k, float* part) {
  for (int32_t i = 0; i < k; i += 4) {
    const int32_t count = k - i < 4 ? k - i : 4;
    for (int32_t o = 0; o < n; ++o)
      for (int32_t j = 0; j < 4; ++j) part[4 * o + j] = j < count ? (float)w[o * k + i + j] : 0.0f;
    for (int32_t p = 0; p < pixels; p += 4) {
      const float *g[4], *v = part;
      float* to[4];
      float s[4][4] = {{0}};
      for (int32_t j = 0; j < 4; ++j) {
        const int32_t q = p + j < pixels ? p + j : pixels - 1;
        g[j] = grad + q * n;
        to[j] = dx + q * k + i;
      }
      const float *g0 = g[0], *g1 = g[1], *g2 = g[2], *g3 = g[3];
      float s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      float s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
      FACULA_TWICE
      for (int32_t o = 0; o < n; ++o) {
        const float v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
        const float h0 = *g0++, h1 = *g1++, h2 = *g2++, h3 = *g3++;
        s00 = facula_fmaf(h0, v0, s00);
        s01 = facula_fmaf(h0, v1, s01);
        s02 = facula_fmaf(h0, v2, s02);
        s03 = facula_fmaf(h0, v3, s03);
        s10 = facula_fmaf(h1, v0, s10);
        s11 = facula_fmaf(h1, v1, s11);
        s12 = facula_fmaf(h1, v2, s12);
        s13 = facula_fmaf(h1, v3, s13);
        s20 = facula_fmaf(h2, v0, s20);
        s21 = facula_fmaf(h2, v1, s21);
        s22 = facula_fmaf(h2, v2, s22);
        s23 = facula_fmaf(h2, v3, s23);
        s30 = facula_fmaf(h3, v0, s30);
        s31 = facula_fmaf(h3, v1, s31);
        s32 = facula_fmaf(h3, v2, s32);
        s33 = facula_fmaf(h3, v3, s33);
        v += 4;
      }
      s[0][0] = s00, s[0][1] = s01, s[0][2] = s02, s[0][3] = s03;
      s[1][0] = s10, s[1][1] = s11, s[1][2] = s12, s[1][3] = s13;
      s[2][0] = s20, s[2][1] = s21, s[2][2] = s22, s[2][3] = s23;
      s[3][0] = s30, s[3][1] = s31, s[3][2] = s32, s[3][3] = s33;
      for (int32_t j = 0; j < 4; ++j)
        for (int32_t t = 0; t < count; ++t) to[j][t] = s[j][t];
    }
  }
}
#endif
)c"},
    {"facula_depthwise_backward", R"c(
FACULA_INLINE void facula_depthwise_backward4(const float* x, int32_t columns, const float* w, int32_t kernel, float* sums) {
  float a = 0, b = 0, c = 0, d = 0;
  for (int32_t ky = 0; ky < kernel; ++ky) {
    float x0 = x[0], x1 = x[1], x2 = x[2];
    FACULA_UNROLL
    for (int32_t kx = 0; kx < kernel; ++kx) {
      const float x3 = x[kx + 3], v = w[kx];
      a = facula_fmaf(x0, v, a);
      b = facula_fmaf(x1, v, b);
      c = facula_fmaf(x2, v, c);
      d = facula_fmaf(x3, v, d);
      x0 = x1;
      x1 = x2;
      x2 = x3;
    }
    x += columns;
    w += kernel;
  }
  sums[0] = a;
  sums[1] = b;
  sums[2] = c;
  sums[3] = d;
}
static void facula_depthwise_backward_sums(const float* x, int32_t columns, const float* w, int32_t kernel, float* sums) {
  switch (kernel) {
    case 3: facula_depthwise_backward4(x, columns, w, 3, sums); return;
    case 5: facula_depthwise_backward4(x, columns, w, 5, sums); return;
    case 7: facula_depthwise_backward4(x, columns, w, 7, sums); return;
    default: facula_depthwise_backward4(x, columns, w, kernel, sums);
  }
}
/* The gradient of a depthwise convolution of one image for its input. The gradients of a channel are copied to padded rows, with
   stride - 1 zeros between them. dx may be grad if both have the same sizes. */
FACULA_KERNEL void facula_depthwise_backward(const float* grad, const int8_t* w, float* dx, int32_t channels, int32_t height, int32_t width,
                                      int32_t out_height, int32_t out_width, int32_t kernel, int32_t stride, int32_t pad,
                                      float* scratch) {
  const int32_t before = kernel - 1 - pad, columns = (width + 3) / 4 * 4 + kernel, rows = height + kernel - 1;
  float *const flipped = scratch, *const padded = scratch + kernel * kernel;
  for (int32_t i = 0; i < columns * rows; ++i) padded[i] = 0;
  for (int32_t c = 0; c < channels; ++c) {
    const int8_t* taps = w + (c + 1) * kernel * kernel;
    for (int32_t i = 0; i < kernel * kernel; ++i) flipped[i] = (float)*--taps;
    for (int32_t oy = 0; oy < out_height; ++oy) {
      const float* from = grad + oy * out_width * channels + c;
      float* to = padded + (before + oy * stride) * columns + before;
      for (int32_t ox = 0; ox < out_width; ++ox) {
        *to = *from;
        to += stride;
        from += channels;
      }
    }
    for (int32_t iy = 0; iy < height; ++iy) {
      float* to = dx + iy * width * channels + c;
      for (int32_t ix = 0; ix < width; ix += 4) {
        float sums[4];
        const int32_t count = width - ix < 4 ? width - ix : 4;
        facula_depthwise_backward_sums(padded + iy * columns + ix, columns, flipped, kernel, sums);
        for (int32_t i = 0; i < count; ++i) {
          *to = sums[i];
          to += channels;
        }
      }
    }
  }
}
)c"},
};

}  // namespace facula::embed
