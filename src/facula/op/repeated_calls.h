// Calls of one operator in sequence, for example on the items of lists. A call whose arguments have the layouts of the previous
// call's runs the same kernel without a look-up (implemented in run/).
#pragma once
#include <memory>

#include "facula/op/call.h"

namespace facula::op {

class RepeatedCalls {
 public:
  RepeatedCalls(const Operator& op, Form form);  // functional or in place
  ~RepeatedCalls();
  RepeatedCalls(const RepeatedCalls&) = delete;
  // The same as op::call. What `args` refer to must live until the next call, or until this object ends.
  Results operator()(std::span<const Value> args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace facula::op
