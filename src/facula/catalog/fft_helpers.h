// Helpers of the families fft, hermitian_fft and stft.
#pragma once
#include <algorithm>

#include "facula/base/per_thread.h"
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::fft_helpers {

using namespace facula::loop;
using namespace facula::op;

// How a transform is scaled: not, by 1/sqrt(n), by 1/n.
enum Scaling : int64_t { none, root, whole };
inline Scaling scaling(const char* name, std::optional<std::string_view> norm, bool forward) {
  std::string_view mode = norm.value_or("backward");
  if (mode == "ortho") return root;
  runtime_check(mode == "backward" || mode == "forward", name)
      << "invalid normalization mode: \"" << std::string(mode) << "\""
      << hint("norm is 'backward', 'forward' or 'ortho'");
  return (mode == "forward") == forward ? whole : none;
}
inline const char* shown(const char* name) {  // fft_rfft as fft.rfft
  struct Text : std::string {};
  auto& text = per_thread<Text>();
  text.assign(name);
  if (text.rfind("fft_", 0) == 0) text[3] = '.';
  return text.c_str();
}
inline Tensor floating_of(const Tensor& x) {
  return is_differentiable(x.dtype()) ? x : to_dtype(x, default_dtype());
}
inline Tensor complex_input(const Tensor& x) {
  return is_complex(x.dtype()) ? x : to_dtype(x, complex_of(floating_of(x).dtype()));
}
inline Tensor real_input(const char* name, const Tensor& x) {
  runtime_check(!is_complex(x.dtype()), shown(name))
      << "expects a real input tensor, but got " << x.dtype() << hint("fft.fft takes complex input");
  return floating_of(x);
}
// x cropped or padded with zeros to n along dimension d.
inline Tensor resized(const char* name, const Tensor& x, int d, SymInt n) {
  runtime_check(n > SymInt(int64_t(0)), shown(name))
      << "invalid number of data points (" << n << ") specified";
  if (x.size(d) == n) return x;
  Dims pad(size_t(2 * (x.dim() - d)), SymInt(int64_t(0)));
  pad.back() = n - x.size(d);
  return constant_pad_nd(x, pad, 0);
}
inline int one_dim(const char* name, const Tensor& x, int64_t dim) {
  index_check(x.dim() > 0, shown(name)) << "a 0-d tensor has no dimension to transform";
  return wrap_dim(shown(name), dim, x.dim());
}
// The dimensions and sizes of an n-dimensional transform.
struct Plan {
  Ints dims;
  Dims sizes;
};
inline Plan plan(const char* name, const Tensor& x, Sizes s, Sizes dim, bool of_half) {
  Plan p;
  if (!dim.is_none())
    for (auto k : dim) p.dims.push_back(one_dim(name, x, k.guard_int()));
  else {
    int64_t n = s.is_none() ? x.dim() : int64_t(s.size());
    runtime_check(n <= x.dim(), shown(name))
        << "got shape with " << n << " values but input tensor only has " << x.dim() << " dimensions";
    for (int64_t k = x.dim() - n; k < x.dim(); ++k) p.dims.push_back(k);
  }
  for (size_t k = 0; k < p.dims.size(); ++k)
    runtime_check(std::count(p.dims.begin(), p.dims.end(), p.dims[k]) == 1, shown(name))
        << "FFT dims must be unique";
  runtime_check(s.is_none() || s.size() == p.dims.size(), shown(name))
      << "when given, dim and shape arguments must have the same length";
  for (size_t k = 0; k < p.dims.size(); ++k) {
    SymInt n = x.size(int(p.dims[k]));
    if (of_half && k + 1 == p.dims.size()) n = (n - SymInt(int64_t(1))) * SymInt(int64_t(2));
    p.sizes.push_back(s.is_none() || s[k] == SymInt(int64_t(-1)) ? n : s[k]);
  }
  return p;
}
// Refuses every size of 0, as PyTorch's FFT libraries do.
inline const Tensor& filled(const char* name, const Tensor& x) {
  runtime_check(x.numel() != SymInt(int64_t(0)), shown(name))
      << "expects elements to transform, but got an empty batch of shape " << to_string(x.sizes());
  return x;
}
inline Tensor complex_transform(const char* name, const Tensor& self, const Plan& p,
                                std::optional<std::string_view> norm, bool forward) {
  Tensor x = complex_input(self);
  if (p.dims.empty()) return x;
  for (size_t k = 0; k < p.dims.size(); ++k) x = resized(name, x, int(p.dims[k]), p.sizes[k]);
  return _fft_c2c(filled(name, x), p.dims, scaling(shown(name), norm, forward), forward);
}
inline Tensor to_half(const char* name, const Tensor& self, const Plan& p,
                      std::optional<std::string_view> norm) {
  Tensor x = real_input(name, self);
  runtime_check(!p.dims.empty(), shown(name)) << "must transform at least one axis";
  for (size_t k = 0; k < p.dims.size(); ++k) x = resized(name, x, int(p.dims[k]), p.sizes[k]);
  return _fft_r2c(filled(name, x), p.dims, scaling(shown(name), norm, true));
}
inline Tensor from_half(const char* name, const Tensor& self, const Plan& p,
                        std::optional<std::string_view> norm) {
  Tensor x = complex_input(self);
  runtime_check(!p.dims.empty(), shown(name)) << "must transform at least one axis";
  SymInt last = p.sizes[p.sizes.size() - 1];
  runtime_check(last > SymInt(int64_t(0)), shown(name))
      << "invalid number of data points (" << last << ") specified";
  for (size_t k = 0; k + 1 < p.dims.size(); ++k) x = resized(name, x, int(p.dims[k]), p.sizes[k]);
  x = resized(name, x, int(p.dims.back()), last / SymInt(int64_t(2)) + SymInt(int64_t(1)));
  return _fft_c2r(filled(name, x), p.dims, scaling(shown(name), norm, false), last);
}
inline Plan along(const char* name, const Tensor& self, std::optional<SymInt> n, int64_t dim,
                  bool of_half = false) {
  int d = one_dim(name, self, dim);
  SymInt own = of_half ? (self.size(d) - SymInt(int64_t(1))) * SymInt(int64_t(2)) : self.size(d);
  return {Ints{d}, Dims{n.value_or(own)}};
}
// Strides with `dim` as the innermost dimension, as PyTorch lays an out= tensor whose result it conjugates.
inline Dims innermost(const char* name, const Call& c, SymSpan sizes) {
  size_t last = size_t(one_dim(name, c.tensor("self"), c.integer("dim").guard_int()));
  Dims strides(sizes.size()), order;
  SymInt step(int64_t(1));
  for (size_t k = sizes.size(); k-- > 0;) order.push_back(int64_t(k));
  std::stable_partition(order.begin(), order.end(), [&](SymInt k) { return k == SymInt(int64_t(last)); });
  for (SymInt at : order) {
    size_t k = size_t(at.guard_int());
    strides[k] = step;
    step = step * (sizes[k] > SymInt(int64_t(1)) ? sizes[k] : SymInt(int64_t(1)));
  }
  return strides;
}
// Declares a transform that users call.
inline Definer transform(const char* schema, const char* doc) {
  return std::move(define(schema).doc(doc).bind(fft).autocast(Autocast::fp32));
}

}  // namespace facula::catalog::fft_helpers
