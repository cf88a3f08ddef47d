#include "facula/device/cpu/tile_conv.h"

#include <limits>
#include <vector>

#include "facula/base/cache_sizes.h"
#include "facula/base/matmul_precision.h"
#include "facula/base/parallel.h"
#include "facula/base/settings.h"
#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/device/cpu/cpu.h"
#include "facula/device/cpu/generated_product.h"
#include "facula/device/cpu/onednn.h"
#include "facula/loop/tiles.h"
#include "facula/schedule/flatten.h"
#include "facula/schedule/product_choice.h"
#include "facula/tensor/derived.h"

namespace facula::device::cpu {

namespace {

int64_t padded(int64_t channels) { return schedule::ceil_div(channels, loop::kTileTerms) * loop::kTileTerms; }

// The places of the taps of windows, [windows][taps]. at(window, tap, y, x) sets the pixel of a tap and returns whether there is one.
struct Images {
  int64_t n, h, w, channels;
};
template <class At>
std::vector<int32_t> places_of(const Images& of, int64_t rows, int64_t columns, int64_t kh, int64_t kw,
                               At&& at) {
  const int64_t taps = kh * kw, windows = of.n * rows * columns;
  std::vector<int32_t> places(static_cast<size_t>(windows * taps));
  parallel_for(windows, 1 + 8192 / taps, [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q)
      for (int64_t ky = 0; ky < kh; ++ky)
        for (int64_t kx = 0; kx < kw; ++kx) {
          int64_t y, x;
          bool inside =
              at(q / columns % rows, q % columns, ky, kx, y, x) && y >= 0 && y < of.h && x >= 0 && x < of.w;
          int64_t pixel = (q / (rows * columns) * of.h + y) * of.w + x;
          places[size_t(q * taps + ky * kw + kx)] = inside ? int32_t(pixel * of.channels) : -1;
        }
  });
  return places;
}
// Windows of the input.
std::vector<int32_t> places_of_windows(const TileConv& s) {
  return places_of(Images{s.n, s.h, s.w, s.c}, s.oh, s.ow, s.kh, s.kw,
                   [&](int64_t oy, int64_t ox, int64_t ky, int64_t kx, int64_t& y, int64_t& x) {
                     y = oy * s.stride[0] + ky * s.dilation[0] - s.padding[0];
                     x = ox * s.stride[1] + kx * s.dilation[1] - s.padding[1];
                     return true;
                   });
}
// For each pixel of the input the windows that have it at a tap.
std::vector<int32_t> places_of_pixels(const TileConv& s) {
  return places_of(Images{s.n, s.oh, s.ow, s.o}, s.h, s.w, s.kh, s.kw,
                   [&](int64_t iy, int64_t ix, int64_t ky, int64_t kx, int64_t& y, int64_t& x) {
                     const int64_t from_y = iy + s.padding[0] - ky * s.dilation[0],
                                   from_x = ix + s.padding[1] - kx * s.dilation[1];
                     y = from_y / s.stride[0], x = from_x / s.stride[1];
                     return from_y >= 0 && from_x >= 0 && from_y % s.stride[0] == 0 &&
                            from_x % s.stride[1] == 0;
                   });
}

SymInt sym(int64_t x) { return SymInt(x); }

// The weight as a matrix [columns][taps][padded], zero beyond the channels; `columns` and `channels` are its dimensions of that name. The
// weight's storage may retain it.
Tensor spread(const TileConv& s, const Tensor& weight, size_t columns, size_t channels) {
  const int64_t rows = columns ? s.c : s.o, inner = channels ? s.c : s.o, taps = s.kh * s.kw,
                wide = padded(inner);
  const int64_t sizes[] = {rows, taps, wide};
  auto strides = weight.strides();
  auto fill = [&](const Tensor& matrix) {
    if (wide != inner) fill_zero(matrix);
    Dims shape{sym(rows), sym(s.kh), sym(s.kw), sym(inner)},
        from{strides[columns], strides[2], strides[3], strides[channels]},
        to{sym(taps * wide), sym(s.kw * wide), sym(wide), sym(1)};
    copy(matrix.alias(shape, to, sym(0)), weight.alias(shape, from, weight.offset()));
  };
  constexpr int64_t kSpread = -2;  // the other keys begin with dtypes (conv.cpp)
  Key key{kSpread, int64_t(s.dtype), weight.offset().concrete(), int64_t(columns), rows, inner, s.kh, s.kw};
  for (size_t d = 0; d < 4; ++d) key.push_back(strides[d].concrete());
  const Dims dims{sym(rows), sym(taps), sym(wide)};
  const size_t bytes = size_t(rows * taps * wide * itemsize(s.dtype));
  Storage retained =
      derived(*weight.impl()->storage, {key.data(), key.size()}, int(columns), bytes, [&](void* to) {
        fill(Tensor::from_blob(to, IntSpan(sizes), concrete(contiguous_strides(dims)), s.dtype, [] {}));
      });
  if (retained)
    return Tensor(
        make_ref<TensorImpl>(retained, dims, contiguous_strides(dims), SymInt(), s.dtype, Device{}));
  Tensor matrix = Tensor::empty(IntSpan(sizes), s.dtype);
  fill(matrix);
  return matrix;
}

// Runs a product into `out`, which is row-major; results of 16 bits are rounded from sums in float32.
void run_into(GeneratedProduct p, int parts, const Tensor& out) {
  Tensor sums;
  void* to = out.impl()->data_ptr();
  if (out.dtype() != DType::Float32) {
    const int64_t elements[] = {p.m * p.n};
    sums = Tensor::empty(IntSpan(elements), DType::Float32);
    p.result = to, p.result_dtype = out.dtype();
    to = sums.impl()->data_ptr();
  }
  p.out = static_cast<float*>(to);
  run_by_tiles(p, parts);
}

// The product of windows of `images` and a spread weight.
void by_windows(const TileConv& s, int parts, const Tensor& images, const std::vector<int32_t>& places,
                int64_t windows, int64_t channels, const Tensor& matrix, const Tensor& bias,
                const Tensor& output) {
  const int64_t taps = s.kh * s.kw, terms = taps * padded(channels), columns = matrix.size(0).concrete();
  const WindowOperand of{Windows::left, places.data(), taps, channels, padded(channels)};
  GeneratedProduct p{windows,
                     columns,
                     terms,
                     1,
                     {images.impl()->data_ptr(), Adjacent::row, terms, 0},
                     {matrix.impl()->data_ptr(), Adjacent::column, terms, 0, matrix.impl()->storage.get()},
                     nullptr,
                     columns,
                     0};
  void* operands[] = {bias.defined() ? bias.impl()->data_ptr() : nullptr};
  if (bias.defined()) p.epilogue = bias_epilogue(s.dtype), p.operands = operands;
  p.operand_dtype = s.dtype, p.windows = &of;
  run_into(p, parts, output);
}

}  // namespace

int tile_conv_parts(const TileConv& s, int64_t rows, int64_t columns, int64_t terms) {
  // Places are offsets of 32 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const bool fits = s.n * s.h * s.w * s.c <= kMost && s.n * s.oh * s.ow * s.o <= kMost;
  const bool has_dtype = s.dtype == DType::Float32 || s.dtype == DType::BFloat16;
  if (!fits || !has_dtype || s.o == 0 || s.c == 0) return 0;
  const bool wide = s.dtype == DType::Float32;
  const int parts = wide ? kMostParts - int(matmul_precision()) : 1;
  if (settings().products == "tiles") return parts;
  // oneDNN convolves bfloat16 by the same unit.
  if (!wide || !settings().products.empty() || !multiplies_tiles() || !codegen::can_compile()) return 0;
  const schedule::ProductShape shape{rows, columns, terms};
  return schedule::prefers_tiles(shape, parts, codegen::vector_lanes(), cache_sizes(), true) ? parts : 0;
}

void tile_conv(const TileConv& s, int parts, const Tensor& input, const Tensor& weight, const Tensor& bias,
               const Tensor& output) {
  by_windows(s, parts, input, places_of_windows(s), s.n * s.oh * s.ow, s.c, spread(s, weight, 0, 1), bias,
             output);
}

void tile_conv_backward_input(const TileConv& s, int parts, const Tensor& grad, const Tensor& weight,
                              const Tensor& input) {
  by_windows(s, parts, grad, places_of_pixels(s), s.n * s.h * s.w, s.o, spread(s, weight, 1, 0), {}, input);
}

void tile_conv_backward_weight(const TileConv& s, int parts, const Tensor& input, const Tensor& grad,
                               const Tensor& weight) {
  const int64_t taps = s.kh * s.kw, wide = padded(s.c), windows = s.n * s.oh * s.ow;
  const int64_t sizes[] = {s.o, taps * wide};
  const std::vector<int32_t> places = places_of_windows(s);
  const WindowOperand of{Windows::right, places.data(), taps, s.c, wide};
  Tensor matrix = Tensor::empty(IntSpan(sizes), s.dtype);
  GeneratedProduct p{s.o,
                     taps * wide,
                     windows,
                     1,
                     {grad.impl()->data_ptr(), Adjacent::column, s.o, 0},
                     {input.impl()->data_ptr(), Adjacent::row, 0, 0},
                     nullptr,
                     taps * wide,
                     0};
  p.operand_dtype = s.dtype, p.windows = &of;
  run_into(p, parts, matrix);
  Dims shape{sym(s.o), sym(s.c), sym(s.kh), sym(s.kw)},
      from{sym(taps * wide), sym(1), sym(s.kw * wide), sym(wide)};
  copy(weight, matrix.alias(shape, from, sym(0)));
}

}  // namespace facula::device::cpu
