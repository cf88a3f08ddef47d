// Operators that make tensors out of nothing: they take dtype=, device= and requires_grad=.
#pragma once
#include "facula/base/device.h"
#include "facula/base/error.h"
#include "facula/tensor/storage.h"

namespace facula::op {

// A device that was asked for is never ignored: AssertionError where this build has no backend for it, as
// PyTorch's, and NotImplementedError where nothing can hold tensors.
inline void check_can_hold(std::string_view function, Device device) {
  if (device.type <= DeviceType::meta) return;
  built_check(device.type != DeviceType::cuda, function)
      << "Facula not compiled with CUDA enabled" << hint("device='cpu' works");
  supported_check(memory_of(device.type), function)
      << "no backend can hold tensors on " << to_string(device) << hint("device='cpu' works");
}

}  // namespace facula::op
