// Helpers of the families pool, max_pool and adaptive_pool.
#pragma once
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::pool_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

// Kernel, stride, padding and dilation of the two last dimensions.
struct Window {
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  bool ceil = false;
};
inline Window window(const Call& c) {
  Window w;
  auto pair = [&](const char* arg, int64_t* to) {
    Dims p = c.ints(arg, 2);
    for (int k = 0; k < 2; ++k) to[k] = p[size_t(k)].guard_int();
  };
  pair("kernel_size", w.kernel);
  if (c.has("stride") && !c.ints("stride").empty()) pair("stride", w.stride);
  else std::copy(w.kernel, w.kernel + 2, w.stride);
  pair("padding", w.padding);
  if (c.op().schema.index_of("dilation") >= 0) pair("dilation", w.dilation);
  else w.dilation[0] = w.dilation[1] = 1;
  w.ceil = c.flag("ceil_mode");
  for (int k = 0; k < 2; ++k) {
    runtime_check(w.kernel[k] > 0 && w.stride[k] > 0 && w.dilation[k] > 0, c.name())
        << "kernel size, stride and dilation must be greater than zero";
    for (int64_t given : {w.kernel[k], w.stride[k], w.dilation[k]})
      runtime_check(given < int64_t(1) << 31, c.name())
          << "kernel size, stride and dilation must be below 2^31, got " << given;
    runtime_check(w.padding[k] >= 0 && w.padding[k] <= w.kernel[k] / 2, c.name())
        << "pad should be at most half of kernel size, but got pad=" << w.padding[k]
        << " and kernel_size=" << w.kernel[k];
  }
  return w;
}
// The position along input dimension k of step b of window o, and whether it is inside.
struct Tap {
  Expr at, inside;
};
inline Tap tap(const Window& w, int k, Expr o, Expr b, SymInt n) {
  Expr at = o * Scalar(w.stride[k]) + b * Scalar(w.dilation[k]) - Scalar(w.padding[k]);
  if (w.padding[k] == 0 && !w.ceil) return {at, constant(true, DType::Bool)};
  Expr limit = loop::size(n);
  return {at, (at >= Scalar(int64_t(0))) & (at < limit)};
}
// Steps of the window are numbered row by row: their number is what is remembered of the largest element. A
// byte does for most windows.
inline DType tap_type(const Window& w) {
  return w.kernel[0] < 256 && w.kernel[0] * w.kernel[1] < 256 ? DType::UInt8 : DType::Int64;
}
// The step b of dimension k of a tap.
inline Expr step(const Window& w, int k, Expr tap) {
  return k ? remainder(tap, Scalar(w.kernel[1])) : floordiv(tap, Scalar(w.kernel[1]));
}
// A window that may hold an element at `at` of dimension k: there is one of this number if `inside`, which is a
// condition on `at` alone; it holds the element, as its step `step`, if `valid` too. Lanes run along the columns: a
// row's windows are valid for all of them or for none.
struct Cover {
  Expr window, inside, valid, step;
};
// Windows of number b < reach(w, k) are candidates.
inline int64_t reach(const Window& w, int k) {
  return w.dilation[k] == 1 ? (w.kernel[k] + w.stride[k] - 1) / w.stride[k] : w.kernel[k];
}
inline Cover cover(const Window& w, int k, Expr at, Expr b, SymInt outputs) {
  Scalar stride = w.stride[k];
  Expr padded = at + Scalar(w.padding[k]), limit = loop::size(outputs), always = constant(true, DType::Bool);
  if (w.dilation[k] == 1) {  // the last window that begins before the element, and those before it
    Expr step = remainder(padded, stride) + b * stride;
    return {floordiv(padded, stride) - b, (padded >= b * stride) & (padded < (limit + b) * stride),
            w.kernel[k] % w.stride[k] ? step < Scalar(w.kernel[k]) : always, step};
  }
  Expr start = padded - b * Scalar(w.dilation[k]);  // of the window that has the element as its step b
  return {floordiv(start, stride), (start >= Scalar(int64_t(0))) & (start < limit * stride),
          w.stride[k] > 1 ? eq(remainder(start, stride), Scalar(int64_t(0))) : always, b};
}
// The only one, where windows do not overlap.
inline Cover only_cover(const Window& w, int k, Expr at, SymInt outputs) {
  Scalar stride = w.stride[k];
  Expr start = at + Scalar(w.padding[k]), step = remainder(start, stride);
  return {floordiv(start, stride),
          start<loop::size(outputs) * stride, w.stride[k]> w.kernel[k] ? step < Scalar(w.kernel[k])
                                                                       : constant(true, DType::Bool),
          step};
}
// Sum of f(Cover, Cover) over the windows that may hold element i, where there are such; r: the first of its two
// last dimensions.
template <class F>
Expr over_windows(const LoopCall& c, const Window& w, const Index& i, size_t r, SymSpan outputs, F&& f) {
  auto value = [&](const Cover& y, const Cover& x) {
    Expr v = f(y, x), none = constant(0.0, v.dtype());
    return select(y.inside & y.valid, select(x.inside, v, none), none);
  };
  bool apart =
      w.stride[0] >= w.kernel[0] && w.stride[1] >= w.kernel[1] && w.dilation[0] == 1 && w.dilation[1] == 1;
  if (apart) return value(only_cover(w, 0, i[r], outputs[r]), only_cover(w, 1, i[r + 1], outputs[r + 1]));
  return reduce(c, monoid::sum, {SymInt(reach(w, 0)), SymInt(reach(w, 1))}, [&](Index b) {
    return value(cover(w, 0, i[r], b[0], outputs[r]), cover(w, 1, i[r + 1], b[1], outputs[r + 1]));
  });
}
inline Samples pool_samples() {
  return samples({"self![2, 3, 6, 7], kernel_size=[2]",
                  "self![2, 1, 6, 7], kernel_size=[3], stride=[2], padding=[1]",
                  "self![3, 5, 4], kernel_size=[2, 3], stride=[1]",
                  "self![1, 1, 8, 7], kernel_size=[3], stride=[1], padding=[0], dilation=[2]"});
}

}  // namespace facula::catalog::pool_helpers
