#include "facula/tensor/promotion.h"

namespace facula {

namespace {
// A lower rank matters only if it brings a higher category. A complex one then takes the precision of what outranks it.
DType outrank(DType high, DType low) {
  if (category(low) <= category(high)) return high;
  return is_floating(high) ? complex_of(high) : promote(high, low);
}
}  // namespace

DType Promotion::result() const {
  DType r{};
  bool any = false;
  for (int p = 2; p >= 0; --p) {
    if (!any_[p]) continue;
    r = any ? outrank(types_[p], r) : types_[p];
    any = true;
  }
  return r;
}

bool can_cast(DType from, DType to) {
  if (is_complex(from) && !is_complex(to)) return false;
  if (is_floating(from) && !is_differentiable(to)) return false;
  return is_bool(from) || !is_bool(to);
}

}  // namespace facula
