// Backend: what a device has to offer. One object a device type, registered once; cpu/ and cuda/ here, a
// third party's in the same way. Generated kernels run on it through codegen; operators of kind library and
// data-dependent find their implementation in its table by name.
#pragma once
#include <functional>
#include <string_view>

#include "facula/op/operator.h"

namespace facula::backend {

// Computes a library operator. `out` holds one allocated, dense tensor a result (any strides for out= forms:
// copy if needed); a data-dependent operator gets an empty span and returns its results. Arguments are
// validated and promoted already; tensors may have any strides. Never touches autograd.
using LibraryFn = op::Results (*)(const op::Call& call, std::span<const Tensor> out);

class Backend {
 public:
  virtual ~Backend() = default;
  // Null if there is none: the reference runs.
  virtual LibraryFn find(std::string_view library_name) const = 0;
  virtual void synchronize() const {}
  virtual std::string describe() const = 0;  // name, features, libraries with versions
};

void register_backend(DeviceType type, const Backend* b);
const Backend& backend_of(DeviceType type);  // RuntimeError if there is none

}  // namespace facula::backend
