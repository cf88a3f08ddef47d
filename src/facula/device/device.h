// Backend: the interface of a device. Each device type registers one object: cpu/ here, a third party's in the same way
// (docs/adding_a_device.md). Operators of the kinds library and data-dependent find their implementation in its table by
// name.
#pragma once
#include <functional>
#include <string_view>

#include "facula/op/operator.h"
#include "facula/schedule/epilogue.h"

namespace facula::device {

// Computes a library operator. `out` holds one allocated, dense tensor per result (with any strides for out= forms: copy
// if needed); a data-dependent operator gets an empty span and returns its results. Arguments are already validated and
// promoted; tensors may have any strides. Never touches autograd.
using LibraryFn = op::Results (*)(const op::Call& call, std::span<const Tensor> out);

// An epilogue of a call with its operands. `out` is laid out like the call's result; it may be the result's memory, and the
// result is then only the input of the epilogue.
struct EpilogueCall {
  const schedule::Epilogue& function;
  std::span<void* const> operands;
  std::span<const int64_t> params;
  void* out;
};
// Computes a library operator and the epilogue of its result. False if that is not possible for this call, or not faster than
// one after the other; then nothing was written.
using EpilogueFn = bool (*)(const op::Call& call, std::span<const Tensor> out, const EpilogueCall& epilogue);

class Backend {
 public:
  virtual ~Backend() = default;
  // Null if the backend has no such function; the reference definition runs then.
  virtual LibraryFn find(std::string_view library_name) const = 0;
  // The function that computes this operator with an epilogue; null if there is none.
  virtual EpilogueFn find_with_epilogue(std::string_view) const { return nullptr; }
  // Returns whether the function from find() can compute this call; if not, the CPU computes it, over copies. Only
  // devices that add_device() registered are asked.
  virtual bool takes(const op::Call&) const { return true; }
  virtual void synchronize() const {}
  virtual std::string describe() const = 0;  // name, features, libraries with versions
};

void register_backend(DeviceType type, const Backend* b);
// Adds a device type, which `name` denotes from then on ("npu", "npu:0"). Functions that `b` finds run on the device's
// memory, all others on the CPU over copies. Both objects have to live as long as the process. Raises RuntimeError if the
// name is taken.
DeviceType add_device(std::string_view name, const Backend* b, const DeviceMemory* memory);
const Backend& backend_of(DeviceType type);  // RuntimeError if there is none

}  // namespace facula::device
