// The operator that does the work of a batch of calls of a loop, a view or a composite.
#pragma once
#include <deque>
#include <string_view>
#include <vector>

#include "facula/op/operator.h"

namespace facula::batch {

// By tensor slot: which operands have the batch as their first dimension.
using Mask = std::vector<bool>;

// One call of the batch, of the arguments of all: tensors that `mask` marks without their first dimension. They have
// no data.
class Logical {
 public:
  Logical(const op::Operator& o, const Mask& mask, std::span<const op::Value> physical);
  std::span<const op::Value> args() const { return args_; }
  op::Call call() const { return op::Call(*op_, args_); }
  SymInt size() const { return size_; }  // of the batch

 private:
  TensorImpl* one(TensorImpl* t);
  const op::Operator* op_;
  std::vector<op::Value> args_;
  std::deque<std::vector<TensorImpl*>> lists_;
  std::vector<Tensor> shells_;
  SymInt size_;
};

// The batched operator of `o`, a loop, view or composite. It is registered under a full name, by which it is looked up later.
const op::Operator& batched(const op::Operator& o, const Mask& mask);
// The operator of a name as batched() gives it, or null.
const op::Operator* by_name(std::string_view full_name);
// The tensor slot of the operand onto which a loop scatters in this call, or -1.
int base_of_scatter(const op::Operator& o, std::span<const op::Value> args);

}  // namespace facula::batch
