// Helpers of the families conv, conv_batch, conv_backward and conv_forms.
#pragma once
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::conv_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

struct Window {
  int64_t stride[2], padding[2], dilation[2], groups;
};
inline Window window(const Call& c) {
  Window w;
  auto pair = [&](const char* arg, int64_t* to) {
    Dims p = c.ints(arg, 2);
    for (size_t k = 0; k < 2; ++k) to[k] = p[k].guard_int();
  };
  pair("stride", w.stride);
  pair("padding", w.padding);
  pair("dilation", w.dilation);
  w.groups = c.integer("groups").guard_int();
  for (int k = 0; k < 2; ++k) {
    runtime_check(w.stride[k] > 0, c.name())
        << "non-positive stride is not supported, got " << to_string(c.ints("stride"));
    runtime_check(w.dilation[k] > 0, c.name())
        << "dilation should be greater than zero, got " << to_string(c.ints("dilation"));
    runtime_check(w.padding[k] >= 0, c.name())
        << "negative padding is not supported, got " << to_string(c.ints("padding"));
    for (auto [given, arg] : {std::pair(w.stride[k], "stride"), std::pair(w.padding[k], "padding"),
                              std::pair(w.dilation[k], "dilation")})
      runtime_check(given < int64_t(1) << 31, c.name())
          << arg << " must be below 2^31, got " << to_string(c.ints(arg));
  }
  runtime_check(w.groups > 0, c.name()) << "non-positive groups is not supported, got " << w.groups;
  return w;
}
inline Dims conv_sizes(const char* name, SymSpan input, SymSpan weight, const Window& w) {
  runtime_check(input.size() == 3 || input.size() == 4, name)
      << "expected 3D (unbatched) or 4D (batched) input [N, C, H, W], but got input of size "
      << to_string(input);
  runtime_check(weight.size() == 4, name)
      << "weight must be 4D [out_channels, in_channels / groups, kH, kW], got shape " << to_string(weight);
  SymInt channels = input[input.size() - 3];
  runtime_check(channels == weight[1] * SymInt(w.groups), name)
      << "given groups=" << w.groups << ", weight of size " << to_string(weight) << ", expected input"
      << to_string(input) << " to have " << weight[1] * SymInt(w.groups) << " channels, but got " << channels
      << " channels instead";
  runtime_check(!(weight[0] < SymInt(w.groups)), name)
      << "given groups=" << w.groups << ", expected weight to be at least " << w.groups
      << " at dimension 0, but got weight of size " << to_string(weight) << " instead";
  runtime_check(weight[0] % SymInt(w.groups) == SymInt(int64_t(0)), name)
      << "given groups=" << w.groups << ", expected weight to be divisible by " << w.groups
      << " at dimension 0, but got weight of size " << to_string(weight) << " instead";
  Dims out(input);
  size_t r = input.size() - 2;
  bool nothing = channels == SymInt(int64_t(0));  // of no channels PyTorch makes none, by kernels of any size
  out[r - 1] = nothing ? SymInt(int64_t(0)) : weight[0];
  for (size_t k = 0; k < 2; ++k) {
    SymInt padded = input[r + k] + SymInt(2 * w.padding[k]),
           kernel = SymInt(w.dilation[k]) * (weight[2 + k] - SymInt(int64_t(1))) + SymInt(int64_t(1));
    runtime_check(nothing || weight[2 + k] > SymInt(int64_t(0)), name)
        << "kernel size should be greater than zero, got weight " << to_string(weight);
    runtime_check(!(kernel > padded), name)
        << "kernel size can't be greater than actual input size: padded input " << padded << ", kernel "
        << kernel << " at dimension " << r + k << " of input " << to_string(input) << ", weight "
        << to_string(weight);
    out[r + k] = (padded - kernel) / SymInt(w.stride[k]) + SymInt(int64_t(1));
  }
  return out;
}
inline void check_dtypes(const char* name, const Tensor& a, const char* what_a, const Tensor& b,
                         const char* what_b) {
  runtime_check(a.dtype() == b.dtype(), name) << what_a << " type (" << a.dtype() << ") and " << what_b
                                              << " type (" << b.dtype() << ") should be the same";
}
inline Expr n_of(SymInt n) { return loop::size(n); }
inline Expr inside(Expr at, Expr n) { return (at >= Scalar(int64_t(0))) & (at < n); }
inline Expr clipped(Expr at, Expr n) { return max(min(at, n - Scalar(int64_t(1))), Scalar(int64_t(0))); }
inline Expr zero_of(Expr x) { return constant(Scalar(int64_t(0)), x.dtype()); }
// The index [n?, channel, y, x].
inline Index pixel(const Index& batch, Expr channel, Expr y, Expr x) {
  Index j = batch;
  j.push_back(channel);
  j.push_back(y);
  j.push_back(x);
  return j;
}
// The input position that window (y, x) reads with tap (ky, kx), and whether it is inside the input.
struct Tap {
  Expr y, x, valid;
};
inline Tap read_at(const Window& w, Expr y, Expr x, Expr ky, Expr kx, SymInt height, SymInt width) {
  auto along = [&](int k, Expr o, Expr tap) {
    return o * Scalar(w.stride[k]) + tap * Scalar(w.dilation[k]) - Scalar(w.padding[k]);
  };
  Expr row = along(0, y, ky), column = along(1, x, kx), h = n_of(height), l = n_of(width);
  return {clipped(row, h), clipped(column, l), inside(row, h) & inside(column, l)};
}
inline Tensor conjugate(const Tensor& x) { return is_complex(x.dtype()) ? conj_physical(x) : x; }
inline Tensor input_gradient(const Tensor& grad, const Tensor& weight, SymSpan size, const Call& c) {
  return convolution_backward_input(grad, conjugate(weight), size, c.ints("stride"), c.ints("padding"),
                                    c.ints("dilation"), c.integer("groups").guard_int());
}
inline Tensor weight_gradient(const Tensor& grad, const Tensor& input, SymSpan size, const Call& c) {
  return convolution_backward_weight(grad, conjugate(input), size, c.ints("stride"), c.ints("padding"),
                                     c.ints("dilation"), c.integer("groups").guard_int());
}
inline Tensor complex_of(const Tensor& re, const Tensor& im) {
  return view_as_complex(stack(std::vector<Tensor>{re, im}, -1));
}
// [batch, n, ...] as [batch * n, ...], and back.
inline Tensor folded(const Tensor& t) {
  Dims sizes{t.size(0) * t.size(1)};
  for (int d = 2; d < t.dim(); ++d) sizes.push_back(t.size(d));
  return reshape(t, sizes);
}
inline Tensor parted(const Tensor& t, SymInt batch, SymInt n) {
  Dims sizes{batch, n};
  for (int d = 1; d < t.dim(); ++d) sizes.push_back(t.size(d));
  return reshape(t, sizes);
}
// The operand of a call as [batch, n, ...].
inline Tensor images(const Batched& b, ParameterName arg) {
  Tensor t = b.whole(arg);
  return b.logical().rank(arg) == 3 ? unsqueeze(t, 1) : t;
}
inline Tensor as_called(const Batched& b, ParameterName arg, const Tensor& t) {
  return b.logical().rank(arg) == 3 ? squeeze(t, 1) : t;
}
struct Steps {
  Dims stride, padding, dilation;
  int64_t groups;
  explicit Steps(const Call& c)
      : stride(c.ints("stride", 2)),
        padding(c.ints("padding", 2)),
        dilation(c.ints("dilation", 2)),
        groups(c.integer("groups").guard_int()) {}
};
// Neither parts of complex numbers nor no channels: such calls are made one by one.
inline bool is_plain(const Batched& b, const char* input) {
  return !is_complex(b.logical().dtype(input)) && product(b.logical().sizes(input)) > SymInt(int64_t(0));
}

}  // namespace facula::catalog::conv_helpers
