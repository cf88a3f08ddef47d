// Backend: what a device has to offer. One object a device type, registered once; cpu/ here, a third party's in the
// same way (docs/adding_a_device.md). Operators of kind library and data-dependent find their implementation in its table
// by name.
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
  // May what find() gave compute this call? Else the CPU does, over copies. Asked of devices that were added.
  virtual bool takes(const op::Call&) const { return true; }
  virtual void synchronize() const {}
  virtual std::string describe() const = 0;  // name, features, libraries with versions
};

void register_backend(DeviceType type, const Backend* b);
// A device of a type of its own, from now on known by `name` ("npu", "npu:0"). What `b` finds runs on its memory, all else
// on the CPU over copies. Both live as long as the process. RuntimeError if the name is taken.
DeviceType add_device(std::string_view name, const Backend* b, const DeviceMemory* memory);
const Backend& backend_of(DeviceType type);  // RuntimeError if there is none

}  // namespace facula::backend
