// Helpers of the families pointwise, arithmetic, comparison and elementary.
#pragma once
#include "facula/op/helpers.h"
#include "facula/op/operator.h"

namespace facula::catalog::pointwise_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

inline constexpr auto floats = d::floating | d::complex;
inline Expr zero_like(Expr x) { return constant(Scalar(int64_t(0)), x.dtype()); }
// A value converted to `d` is rounded to it, also if a fused kernel does not store it.
inline Expr converted(Expr x, DType d) { return round_to(cast(x, compute_type(d)), d); }
inline Expr truth(Expr x) { return cast(x, DType::Bool); }
inline bool is_number(const Value& v) {
  return v.tag == Tag::scalar || v.tag == Tag::integer || (v.tag == Tag::tensor && v.tensor->wrapped_number);
}

}  // namespace facula::catalog::pointwise_helpers
