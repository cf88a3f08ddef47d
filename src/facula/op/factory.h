// Checks for operators that create tensors without operands: they take dtype=, device= and requires_grad=.
#pragma once
#include "facula/base/device.h"
#include "facula/base/error.h"
#include "facula/tensor/storage.h"

namespace facula::op {

// Refuses devices that cannot hold tensors instead of ignoring the request: AssertionError if this build has no
// backend for the device, as in PyTorch, and NotImplementedError if nothing can hold tensors there.
inline void check_can_hold(std::string_view function, Device device) {
  if (device.type <= DeviceType::meta) return;
  built_check(device.type != DeviceType::cuda, function)
      << "Facula not compiled with CUDA enabled" << hint("device='cpu' works");
  supported_check(memory_of(device.type), function)
      << "no backend can hold tensors on " << to_string(device) << hint("device='cpu' works");
}

}  // namespace facula::op
