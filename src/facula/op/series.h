// Several calls of one operator, as for the items of lists: a call whose operands have the same layouts as those of
// the call before reuses its kernel (implemented in run/).
#pragma once
#include <memory>

#include "facula/op/call.h"

namespace facula::op {

class Series {
 public:
  Series(const Operator& op, Form form);  // functional or in place
  ~Series();
  Series(const Series&) = delete;
  // Like call(). The memory to which `args` refer must live until the next call, or until the series ends.
  Results operator()(std::span<const Value> args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace facula::op
