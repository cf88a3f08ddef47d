// C99 functions for products and convolutions of float32, as text (embed/c_functions.h). Images are NCHW. Each sum adds its products in
// the order of the reference definition (channels, rows, columns), and products and sums are rounded, whatever the tile: so every
// machine computes the bits of the reference's loops. Padding is multiplied as zeros, where the reference skips it, which differs
// for weights that are infinite or NaN.
#pragma once
#include "facula/embed/int8_functions.h"

namespace facula::embed {

// A function follows those that it calls.
inline constexpr CText kFloatFunctions[] = {
    {"facula_f32_tile", R"c(
/* Columns of a tile: two vectors of eight, or what the registers of a small machine hold. */
#ifdef FACULA_VECTORS
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
    {"facula_f32_block", R"c(
#define FACULA_DEPTH 256
/* The same for FACULA_COLUMNS or fewer columns of `rows` rows in memory: row r is at to + r * next, its factors are at
   from + r * step. `is_first`: memory has no sums yet. */
FACULA_KERNEL void facula_f32_block(const float* from, int32_t step, int32_t rows, const float* panel, int32_t depth, float* to, int32_t next,
                                    int32_t columns, int is_first) {
  for (int32_t i = 0; i < rows; i += 4) {
    float part[4][FACULA_COLUMNS];
    const float* factors[4];
    float* sums[4];
    for (int32_t r = 0; r < 4; ++r) {
      const int32_t row = i + r < rows ? i + r : rows - 1;
      factors[r] = from + row * step;
      sums[r] = part[r];
      for (int32_t j = 0; j < FACULA_COLUMNS; ++j) part[r][j] = !is_first && j < columns ? to[row * next + j] : 0.0f;
    }
    facula_f32_tile(factors, panel, depth, sums);
    for (int32_t r = 0; r < 4 && i + r < rows; ++r)
      for (int32_t j = 0; j < columns; ++j) to[(i + r) * next + j] = part[r][j];
  }
}
)c"},
    {"facula_f32_product", R"c(
/* Element (i, k) of the left factor is at i * a_row + k * a_step, element (k, j) of the right one at k * b_step + j * b_column. */
struct facula_product {
  int32_t rows, columns, depth, a_row, a_step, b_step, b_column;
};
/* Columns of the right factor from `at` on. */
static void facula_f32_right(const float* b, const struct facula_product* p, int32_t first, int32_t depth, int32_t at, float* panel) {
  const int32_t count = p->columns - at < FACULA_COLUMNS ? p->columns - at : FACULA_COLUMNS;
  const float* from = b + first * p->b_step + at * p->b_column;
  for (int32_t k = 0; k < depth; ++k) {
    for (int32_t j = 0; j < FACULA_COLUMNS; ++j) panel[j] = from[(j < count ? j : 0) * p->b_column];
    from += p->b_step;
    panel += FACULA_COLUMNS;
  }
}
/* Products of less than 4 rows: four columns share the factors on the left. */
static void facula_f32_skinny(const float* a, const float* b, float* y, const struct facula_product* p) {
  for (int32_t i = 0; i < p->rows; ++i)
    for (int32_t j = 0; j < p->columns; j += 4) {
      const float* from[4];
      for (int32_t r = 0; r < 4; ++r) from[r] = b + (j + r < p->columns ? j + r : p->columns - 1) * p->b_column;
      const float *b0 = from[0], *b1 = from[1], *b2 = from[2], *b3 = from[3], *left = a + i * p->a_row;
      float s[4], s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (int32_t k = 0; k < p->depth; ++k) {
        const float v = left[k * p->a_step];
        s0 = s0 + v * b0[k * p->b_step];
        s1 = s1 + v * b1[k * p->b_step];
        s2 = s2 + v * b2[k * p->b_step];
        s3 = s3 + v * b3[k * p->b_step];
      }
      s[0] = s0, s[1] = s1, s[2] = s2, s[3] = s3;
      for (int32_t r = 0; r < 4 && j + r < p->columns; ++r) y[i * p->columns + j + r] = s[r];
    }
}
/* A product of matrices, plus `bias` in each row unless it is 0. `scratch` has room for FACULA_COLUMNS + 4 numbers for each number of a row
   on the left, or for FACULA_DEPTH of them if these are fewer. */
FACULA_KERNEL void facula_f32_product(const float* a, const float* b, const float* bias, float* y, const struct facula_product* p,
                                      float* scratch) {
  const int32_t most = p->depth < FACULA_DEPTH ? p->depth : FACULA_DEPTH;
  float* const left = scratch + FACULA_COLUMNS * most;
  if (p->rows < 4)
    facula_f32_skinny(a, b, y, p);
  else
    for (int32_t at = 0; at < p->columns; at += FACULA_COLUMNS) {
      const int32_t count = p->columns - at < FACULA_COLUMNS ? p->columns - at : FACULA_COLUMNS;
      for (int32_t first = 0; first < p->depth; first += FACULA_DEPTH) {
        const int32_t depth = p->depth - first < FACULA_DEPTH ? p->depth - first : FACULA_DEPTH;
        facula_f32_right(b, p, first, depth, at, scratch);
        if (p->a_step == 1)
          facula_f32_block(a + first, p->a_row, p->rows, scratch, depth, y + at, p->columns, count, first == 0);
        else
          for (int32_t i = 0; i < p->rows; i += 4) {
            const int32_t rows = p->rows - i < 4 ? p->rows - i : 4;
            for (int32_t r = 0; r < rows; ++r)
              for (int32_t k = 0; k < depth; ++k) left[r * depth + k] = a[(i + r) * p->a_row + (first + k) * p->a_step];
            facula_f32_block(left, depth, rows, scratch, depth, y + i * p->columns + at, p->columns, count, first == 0);
          }
      }
    }
  if (bias)
    for (int32_t i = 0; i < p->rows; ++i)
      for (int32_t j = 0; j < p->columns; ++j) y[i * p->columns + j] = y[i * p->columns + j] + bias[j];
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
      facula_f32_block(weights + first, all, outputs, panel, depth, y + at, size, count, first == 0);
    }
    for (int32_t o = 0; bias && o < outputs; ++o)
      for (int32_t j = 0; j < count; ++j) y[o * size + at + j] = y[o * size + at + j] + bias[o];
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
