// Calls over tensors that are not on the CPU. Views, composites and gradients only call operators and work on every device. A
// primitive on `meta`, which has no memory, runs its shape rule alone; on an added device (docs/adding_a_device.md) it runs the
// device's function, or else the CPU's over copies.
#pragma once
#include <span>

#include "facula/op/call.h"

namespace facula::run {

// The device of a call: its `device` argument, else the device of its destination, else that of its first operand that is not
// on the CPU, else the thread's default device. Raises if no backend serves it.
Device device_of(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                 std::span<const Tensor> out);

// The operands of a call, all on `device` except for numbers on the CPU. An operand that only provides a shape (zeros_like) is
// replaced, and an operator that moves operands gets copies; any other operand on another device raises.
class Gathered {
 public:
  Gathered(Device device, const op::Operator& o, std::span<const op::Value> args,
           std::span<const Tensor> out);
  std::span<const op::Value> args() const { return args_.values(); }

 private:
  op::Args args_;
};

// Runs a primitive on a device that is not the CPU; `on_cpu` computes it on copies.
using Compute = op::Results (*)(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                                std::span<const Tensor> out);
op::Results run_elsewhere(Device device, const op::Operator& o, std::span<const op::Value> args,
                          op::Form form, std::span<const Tensor> out, Compute on_cpu);

// A dense copy on another device, not recorded. Raises NotImplementedError for tensors on meta.
Tensor moved(const Tensor& t, Device to);

}  // namespace facula::run
