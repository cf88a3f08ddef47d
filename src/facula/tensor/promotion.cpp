#include "facula/tensor/promotion.h"

namespace facula {

DType Promotion::result() const {
  DType r{};
  bool any = false;
  for (int p = 0; p < 3; ++p) {
    if (!any_[p]) continue;
    if (!any) r = types_[p];
    else if (category(types_[p]) > category(r)) {
      // A lower rank brings a higher category. A number or 0-d tensor of a floating or complex kind keeps the
      // precision of what outranks it.
      if (p == 2 && is_complex(types_[p]) && is_floating(r)) r = complex_of(r);
      else if (p == 2 && is_floating(types_[p])) r = default_dtype();
      else if (p == 2 && is_complex(types_[p])) r = complex_of(default_dtype());
      else r = promote(r, types_[p]);
    }
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
