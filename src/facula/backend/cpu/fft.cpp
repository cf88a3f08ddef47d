// Fourier transforms by ducc0, one axis after the other. Lines are shared out among our threads; ducc0's stay
// idle.
#include <ducc0/fft/fft.h>

#include <cmath>

#include "facula/backend/cpu/cpu.h"
#include "facula/base/parallel.h"

namespace facula::backend::cpu {

namespace {

using Shape = std::vector<size_t>;
using Strides = std::vector<std::ptrdiff_t>;

Shape shape_of(const Tensor& t) { return Shape(t.int_sizes().begin(), t.int_sizes().end()); }
Strides strides_of(const Tensor& t) { return Strides(t.int_strides().begin(), t.int_strides().end()); }

// f(input offset, input shape, output offset, output shape) on pieces along the longest dimension that is not
// `axis`.
template <class F>
void by_pieces(const Tensor& in, const Tensor& out, int axis, F&& f) {
  Shape from = shape_of(in), to = shape_of(out);
  int longest = -1;
  for (int k = 0; k < in.dim(); ++k)
    if (k != axis && (longest < 0 || from[size_t(k)] > from[size_t(longest)])) longest = k;
  if (longest < 0 || from[size_t(longest)] == 1) return f(int64_t(0), from, int64_t(0), to);
  auto l = size_t(longest);
  auto rest = double(in.numel().concrete()) / double(from[l]);
  parallel_for(int64_t(from[l]), std::max<int64_t>(1, int64_t(16384 / rest)),
               [&](int64_t begin, int64_t end) {
                 Shape a = from, b = to;
                 a[l] = b[l] = size_t(end - begin);
                 f(begin * in.int_strides()[l], a, begin * out.int_strides()[l], b);
               });
}

template <class T>
void complex_axis(const Tensor& in, const Tensor& out, int axis, bool forward, T factor) {
  using C = std::complex<T>;
  by_pieces(in, out, axis, [&](int64_t from, const Shape& a, int64_t to, const Shape& b) {
    ducc0::cfmav<C> x(in.data<C>() + from, a, strides_of(in));
    ducc0::vfmav<C> y(out.data<C>() + to, b, strides_of(out));
    ducc0::c2c(x, y, Shape{size_t(axis)}, forward, factor, 1);
  });
}

double factor_of(const Call& c, SymSpan sizes) {
  double n = 1;
  for (auto d : c.ints("dim")) n *= double(sizes[size_t(d.concrete())].concrete());
  switch (c.integer("normalization").concrete()) {
    case 0: return 1;
    case 1: return 1 / std::sqrt(n);
    default: return 1 / n;
  }
}

// f(T{}) with the real type of a floating or complex dtype.
template <class F>
void of_precision(DType d, F&& f) {
  if (real_of(d) == DType::Float32) f(float{});
  else f(double{});
}

bool empty(const Tensor& t) { return t.numel() == SymInt(int64_t(0)); }

}  // namespace

Results fft_c2c(const Call& c, Out out) {
  if (empty(out[0])) return Results(out[0]);
  Tensor self = c.tensor("self");
  Destination to(out[0]);
  double factor = factor_of(c, self.sizes());
  of_precision(self.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Tensor from = self;
    for (auto d : c.ints("dim")) {
      complex_axis<T>(from, to.tensor(), int(d.concrete()), c.flag("forward"), T(factor));
      factor = 1;
      from = to.tensor();
    }
    if (c.ints("dim").empty()) copy(to.tensor(), self);
  });
  to.finish();
  return Results(out[0]);
}

Results fft_r2c(const Call& c, Out out) {
  if (empty(out[0])) return Results(out[0]);
  Tensor self = c.tensor("self");
  Destination to(out[0]);
  double factor = factor_of(c, self.sizes());
  auto dims = c.ints("dim");
  int last = int(dims.back().concrete());
  of_precision(self.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor& y = to.tensor();
    by_pieces(self, y, last, [&](int64_t from, const Shape& a, int64_t at, const Shape& b) {
      ducc0::r2c(ducc0::cfmav<T>(self.data<T>() + from, a, strides_of(self)),
                 ducc0::vfmav<std::complex<T>>(y.data<std::complex<T>>() + at, b, strides_of(y)),
                 Shape{size_t(last)}, true, T(factor), 1);
    });
    for (size_t k = 0; k + 1 < dims.size(); ++k) complex_axis<T>(y, y, int(dims[k].concrete()), true, T(1));
  });
  to.finish();
  return Results(out[0]);
}

Results fft_c2r(const Call& c, Out out) {
  if (empty(out[0])) return Results(out[0]);
  Tensor self = c.tensor("self");
  Destination to(out[0]);
  double factor = factor_of(c, out[0].sizes());
  auto dims = c.ints("dim");
  int last = int(dims.back().concrete());
  of_precision(self.dtype(), [&](auto zero) {
    using T = decltype(zero);
    Tensor from = self;
    if (dims.size() > 1) {
      Tensor between = Tensor::empty(self.sizes(), self.dtype());
      for (size_t k = 0; k + 1 < dims.size(); ++k) {
        complex_axis<T>(from, between, int(dims[k].concrete()), false, T(1));
        from = between;
      }
    }
    const Tensor& y = to.tensor();
    by_pieces(from, y, last, [&](int64_t at, const Shape& a, int64_t target, const Shape& b) {
      ducc0::c2r(ducc0::cfmav<std::complex<T>>(from.data<std::complex<T>>() + at, a, strides_of(from)),
                 ducc0::vfmav<T>(y.data<T>() + target, b, strides_of(y)), Shape{size_t(last)}, false,
                 T(factor), 1);
    });
  });
  to.finish();
  return Results(out[0]);
}

}  // namespace facula::backend::cpu
