// C99 functions for convolutions of float32, as text (embed/c_functions.h). Tensors are NCHW. Each sum adds its products in the
// order of the reference definition (channels, rows, columns), and products and sums are rounded, whatever the tile: so every
// machine computes the bits of the reference's loops. Padding is multiplied as zeros, where the reference skips it, which differs
// for weights that are infinite or NaN.
#pragma once
#include "facula/embed/int8_functions.h"

namespace facula::embed {

// A function follows those that it calls.
inline constexpr CText kFloatFunctions[] = {
    {"facula_f32_tile", R"c(
/* Columns of a tile: two vectors of eight, or what the registers of a small machine hold. */
#if defined(__AVX2__) || defined(__AVX512F__) || defined(__aarch64__) || defined(__ARM_NEON)
#define FACULA_COLUMNS 16
#else
#define FACULA_COLUMNS 4
#endif
/* Adds the products of `depth` numbers of four rows with those of a panel [depth, FACULA_COLUMNS] to four rows of sums. */
FACULA_KERNEL void facula_f32_tile(const float* const rows[4], const float* panel, int32_t depth, float* const sums[4]) {
  const float *const w0 = rows[0], *const w1 = rows[1], *const w2 = rows[2], *const w3 = rows[3];
  float a[FACULA_COLUMNS], b[FACULA_COLUMNS], c[FACULA_COLUMNS], d[FACULA_COLUMNS];
  for (int32_t j = 0; j < FACULA_COLUMNS; ++j) {
    a[j] = sums[0][j];
    b[j] = sums[1][j];
    c[j] = sums[2][j];
    d[j] = sums[3][j];
  }
  for (int32_t k = 0; k < depth; ++k) {
    const float* const x = panel + FACULA_COLUMNS * k;
    const float v0 = w0[k], v1 = w1[k], v2 = w2[k], v3 = w3[k];
    for (int32_t j = 0; j < FACULA_COLUMNS; ++j) {
      a[j] = a[j] + v0 * x[j];
      b[j] = b[j] + v1 * x[j];
      c[j] = c[j] + v2 * x[j];
      d[j] = d[j] + v3 * x[j];
    }
  }
  for (int32_t j = 0; j < FACULA_COLUMNS; ++j) {
    sums[0][j] = a[j];
    sums[1][j] = b[j];
    sums[2][j] = c[j];
    sums[3][j] = d[j];
  }
}
)c"},
    {"facula_f32_conv", R"c(
/* One image's numbers that weights `first` to `first + depth` of each output multiply, for FACULA_COLUMNS outputs from `at` on. */
static void facula_f32_panel(const float* x, const struct facula_window* w, int32_t first, int32_t depth, int32_t at, float* panel) {
  const int32_t taps = w->kernel_height * w->kernel_width, size = w->height * w->width, end = w->out_height * w->out_width;
  int32_t top[FACULA_COLUMNS], left[FACULA_COLUMNS];
  for (int32_t j = 0; j < FACULA_COLUMNS; ++j) {
    const int32_t p = at + j < end ? at + j : end - 1;
    top[j] = p / w->out_width * w->stride_y - w->pad_y;
    left[j] = p % w->out_width * w->stride_x - w->pad_x;
  }
  for (int32_t k = 0; k < depth; ++k) {
    const int32_t channel = (first + k) / taps, tap = (first + k) % taps;
    const int32_t down = tap / w->kernel_width * w->step_y, right = tap % w->kernel_width * w->step_x;
    const float* const from = x + channel * size;
    for (int32_t j = 0; j < FACULA_COLUMNS; ++j) {
      const int32_t y = top[j] + down, z = left[j] + right;
      panel[j] = y >= 0 && y < w->height && z >= 0 && z < w->width ? from[y * w->width + z] : 0.0f;
    }
    panel += FACULA_COLUMNS;
  }
}
/* The same for kernels of size 1 and stride 1. */
static void facula_f32_columns(const float* x, int32_t size, int32_t first, int32_t depth, int32_t at, float* panel) {
  const int32_t count = size - at < FACULA_COLUMNS ? size - at : FACULA_COLUMNS;
  for (int32_t k = 0; k < depth; ++k) {
    const float* const from = x + (first + k) * size + at;
    for (int32_t j = 0; j < FACULA_COLUMNS; ++j) panel[j] = from[j < count ? j : 0];
    panel += FACULA_COLUMNS;
  }
}
/* A convolution of one image: x [channels, height, width], weights [outputs, channels, kernel_height, kernel_width], y [outputs, out_height,
   out_width]. `panel` has room for FACULA_DEPTH x 16 numbers, or for all weights of an output if these are fewer. */
#define FACULA_DEPTH 256
FACULA_KERNEL void facula_f32_conv(const float* x, const float* weights, const float* bias, float* y, int32_t channels, int32_t outputs,
                                   const struct facula_window* w, float* panel) {
  const int32_t all = channels * w->kernel_height * w->kernel_width, size = w->out_height * w->out_width;
  const int pointwise = w->kernel_height == 1 && w->kernel_width == 1 && w->stride_y == 1 && w->stride_x == 1 && !w->pad_y && !w->pad_x;
  for (int32_t at = 0; at < size; at += FACULA_COLUMNS) {
    const int32_t count = size - at < FACULA_COLUMNS ? size - at : FACULA_COLUMNS;
    for (int32_t first = 0; first < all; first += FACULA_DEPTH) {
      const int32_t depth = all - first < FACULA_DEPTH ? all - first : FACULA_DEPTH;
      if (pointwise)
        facula_f32_columns(x, size, first, depth, at, panel);
      else
        facula_f32_panel(x, w, first, depth, at, panel);
      for (int32_t o = 0; o < outputs; o += 4) {
        float part[4][FACULA_COLUMNS];
        const float* rows[4];
        float* sums[4];
        for (int32_t r = 0; r < 4; ++r) {
          const int32_t row = o + r < outputs ? o + r : outputs - 1;
          rows[r] = weights + row * all + first;
          sums[r] = part[r];
          for (int32_t j = 0; j < FACULA_COLUMNS; ++j) part[r][j] = first && j < count ? y[row * size + at + j] : 0.0f;
        }
        facula_f32_tile(rows, panel, depth, sums);
        for (int32_t r = 0; r < 4 && o + r < outputs; ++r) {
          float* const to = y + (o + r) * size + at;
          const int last = bias && first + depth == all;
          for (int32_t j = 0; j < count; ++j) to[j] = last ? part[r][j] + bias[o + r] : part[r][j];
        }
      }
    }
  }
}
)c"},
    {"facula_f32_depthwise", R"c(
/* A convolution of one image whose outputs each read one channel: x [channels, height, width], weights [outputs, kernel_height, kernel_width].
   `padded` has room for a channel with its padding. */
FACULA_KERNEL void facula_f32_depthwise(const float* x, const float* weights, const float* bias, float* y, int32_t channels, int32_t outputs,
                                        const struct facula_window* w, float* padded) {
  const int32_t width = w->width + 2 * w->pad_x, rows = w->height + 2 * w->pad_y, many = outputs / channels;
  for (int32_t i = 0; i < width * rows; ++i) padded[i] = 0.0f;
  for (int32_t o = 0; o < outputs; ++o) {
    const float* const taps = weights + o * w->kernel_height * w->kernel_width;
    if (o % many == 0)
      for (int32_t i = 0; i < w->height; ++i)
        memcpy(padded + (i + w->pad_y) * width + w->pad_x, x + (o / many * w->height + i) * w->width,
               (size_t)w->width * sizeof(float));
    for (int32_t i = 0; i < w->out_height; ++i) {
      float* const to = y + (o * w->out_height + i) * w->out_width;
      for (int32_t j = 0; j < w->out_width; ++j) to[j] = 0.0f;
      for (int32_t ky = 0; ky < w->kernel_height; ++ky)
        for (int32_t kx = 0; kx < w->kernel_width; ++kx) {
          const float* const from = padded + (i * w->stride_y + ky * w->step_y) * width + kx * w->step_x;
          const float tap = taps[ky * w->kernel_width + kx];
          if (w->stride_x == 1)
            for (int32_t j = 0; j < w->out_width; ++j) to[j] = to[j] + tap * from[j];
          else
            for (int32_t j = 0; j < w->out_width; ++j) to[j] = to[j] + tap * from[j * w->stride_x];
        }
      if (bias)
        for (int32_t j = 0; j < w->out_width; ++j) to[j] = to[j] + bias[o];
    }
  }
}
)c"},
};

}  // namespace facula::embed
