#include "facula/op/written.h"

#include <algorithm>

#include "facula/tensor/promotion.h"

namespace facula::op {

void check_written(const Operator& o, const Tensor& value, const Tensor& self, const std::string& where) {
  bool same = value.dim() == self.dim() &&
              std::equal(value.sizes().begin(), value.sizes().end(), self.sizes().begin());
  runtime_check(same, o.name()) << "output with shape " << to_string(self.sizes())
                                << " doesn't match the broadcast shape " << to_string(value.sizes())
                                << hint(where);
  check_as(can_cast(value.dtype(), self.dtype()), o.forms.bad_conversion, o.name())
      << "result type " << value.dtype() << " can't be cast to the desired output type " << self.dtype();
}

}  // namespace facula::op
