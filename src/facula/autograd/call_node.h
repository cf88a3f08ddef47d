// CallNode: what a node that one call of an operator made tells about this call.
#pragma once
#include <functional>
#include <string_view>

#include "facula/op/call.h"

namespace facula::autograd {

class CallNode {
 public:
  virtual ~CallNode() = default;
  // Calls `f` with the call as far as it was kept: tensors have sizes and no data. `kept(k)`: is argument `k` the one
  // that was given? A program that calls share does not know what differs between them.
  using Reader = std::function<void(const op::Call& call, const std::function<bool(size_t)>& kept)>;
  virtual void read_call(const Reader& f) const = 0;
  // Did the node save the tensor of this name, as Node::saved_named() takes it?
  virtual bool saves(std::string_view) { return false; }
};

}  // namespace facula::autograd
