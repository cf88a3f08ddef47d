// Calls over tensors that are not on the CPU. Views, composites and gradients work on every device as they are, for they
// only call operators; what computes runs as the device can: on `meta`, which has no memory, its shape rule alone; on a
// device that was added (docs/adding_a_device.md), the device's own function, or the CPU's over copies.
#pragma once
#include <span>

#include "facula/op/call.h"

namespace facula::run {

// Where the call runs: where its `device` says, where it writes, where its first operand is that is not on the CPU; and
// where nothing tells, on this thread's default device. Raises if nothing serves that device.
Device device_of(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                 std::span<const Tensor> out);

// The operands of a call as it needs them: all on `device`, but for numbers on the CPU. What only lends its shape is
// replaced, what is copied is brought over; any other operand that is elsewhere is an error.
class Gathered {
 public:
  Gathered(Device device, const op::Operator& o, std::span<const op::Value> args,
           std::span<const Tensor> out);
  std::span<const op::Value> args() const { return args_.values(); }

 private:
  op::Args args_;
};

// A call of a primitive on another device than the CPU; `on_cpu` computes it there.
using Compute = op::Results (*)(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                                std::span<const Tensor> out);
op::Results run_elsewhere(Device device, const op::Operator& o, std::span<const op::Value> args,
                          op::Form form, std::span<const Tensor> out, Compute on_cpu);

// A copy of the elements on another device, dense; not recorded. NotImplementedError from meta.
Tensor moved(const Tensor& t, Device to);

}  // namespace facula::run
