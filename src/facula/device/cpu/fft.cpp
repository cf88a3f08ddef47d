// Fourier transforms, one axis after the other.
#include <algorithm>
#include <cmath>

#include "facula/device/cpu/cpu.h"
#include "facula/numerics/fft_lines.h"

namespace facula::device::cpu {

namespace {

// The lines along `axis`. Lines that are neighbours in the result follow each other.
FourierLines lines_of(const Tensor& in, const Tensor& out, int axis, int64_t n) {
  auto a = size_t(axis);
  FourierLines lines{n, in.int_strides()[a], out.int_strides()[a], {}};
  for (size_t k = 0; k < size_t(in.dim()); ++k)
    if (k != a && in.int_sizes()[k] > 1)
      lines.others.push_back({in.int_sizes()[k], in.int_strides()[k], out.int_strides()[k]});
  std::ranges::stable_sort(lines.others, {}, [](auto& d) { return d.to; });
  return lines;
}

template <class T>
void complex_axis(const Tensor& in, const Tensor& out, int axis, bool forward, T factor) {
  using C = std::complex<T>;
  transform_lines<T>(in.data<C>(), out.data<C>(), lines_of(in, out, axis, in.int_sizes()[size_t(axis)]),
                     forward, factor);
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

// Calls f(T{}) with the real type of a floating or complex dtype.
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
    std::vector<int> dims;
    for (auto d : c.ints("dim")) dims.push_back(int(d.concrete()));
    // The dimension with adjacent points comes first: the other ones then work in place, with points a page apart.
    std::ranges::stable_sort(dims, {}, [&](int d) { return to.tensor().int_strides()[size_t(d)]; });
    for (int d : dims) {
      complex_axis<T>(from, to.tensor(), d, c.flag("forward"), T(factor));
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
    transform_lines<T>(self.data<T>(), y.data<std::complex<T>>(),
                       lines_of(self, y, last, self.int_sizes()[size_t(last)]), T(factor));
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
    transform_lines<T>(from.data<std::complex<T>>(), y.data<T>(),
                       lines_of(from, y, last, y.int_sizes()[size_t(last)]), T(factor));
  });
  to.finish();
  return Results(out[0]);
}

}  // namespace facula::device::cpu
