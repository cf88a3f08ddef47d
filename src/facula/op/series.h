// Calls of one operator one after the other, as of the items of lists: of those that lie as the one before only the first
// looks for its kernel (implemented in run/).
#pragma once
#include <memory>

#include "facula/op/call.h"

namespace facula::op {

class Series {
 public:
  Series(const Operator& op, Form form);  // functional or in place
  ~Series();
  Series(const Series&) = delete;
  // As call(). What `args` refer to lives until the next call, or the series, ends.
  Results operator()(std::span<const Value> args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace facula::op
