// Invocation: one operator call on its way to the kernels. It is made when a call arrives; interceptors, the preparation of
// writes and the kind of the operator add what they decide; it lives until the results are there. The spans belong to the
// caller, or to the invocation where it replaced them.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "facula/base/device.h"
#include "facula/op/call.h"
#include "facula/op/operator.h"

namespace facula::run {

class Interposer;

class Invocation {
 public:
  Invocation(const op::Operator& o, std::span<const op::Value> arguments, op::Form f,
             std::span<const Tensor> destinations)
      : op(o), args(arguments), form(f), out(destinations) {}
  Invocation(const Invocation&) = delete;

  const op::Operator& op;
  std::span<const op::Value> args;
  op::Form form;
  std::span<const Tensor>
      out;  // destinations: of Form::out, and self of Form::in_place once that is prepared

  Device device{};                   // computes the results
  Interposer* interposer = nullptr;  // computes the results in place of a kernel (interpose.h)
  bool as_one_call = false;          // the interposer takes the call, and not those that it is made of
  bool recording = false;            // the tape records the call
  Tensor original;  // the value of self before an in-place call, if the gradient needs it; else undefined

  op::Call call() const { return op::Call(op, args); }
  const char* name() const { return op.name(); }  // as errors show it
  // The first argument, a tensor: what an in-place call writes.
  Tensor self() const { return Tensor(Ref<TensorImpl>::share(args[0].tensor)); }
  // Makes self the only destination.
  void write_to_self() {
    first_ = self();
    out = std::span<const Tensor>(&first_, 1);
  }
  // Replaces the first argument.
  void replace_first(Tensor t) {
    first_ = std::move(t);
    own_args_ = std::make_unique<std::vector<op::Value>>(args.begin(), args.end());
    own_args_->front() = op::Value(first_);
    args = *own_args_;
  }

 private:
  Tensor first_;                                      // what write_to_self or replace_first refers to
  std::unique_ptr<std::vector<op::Value>> own_args_;  // by pointer, because few calls need it
};

}  // namespace facula::run
