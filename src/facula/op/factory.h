// Operators that make tensors out of nothing: they take dtype=, device= and requires_grad=.
#pragma once
#include "facula/base/device.h"
#include "facula/base/error.h"

namespace facula::op {

// NotImplementedError where no backend can hold tensors: a device that was asked for is never ignored.
inline void check_can_hold(std::string_view function, Device device) {
  supported_check(device.type == DeviceType::cpu, function)
      << "no backend can hold tensors on " << to_string(device) << hint("device='cpu' works");
}

}  // namespace facula::op
