// A call that stands for a batch of calls (vmap), as the rule of an operator sees it (`Definer::batched`). The rule
// computes all calls by one, and returns results with the batch as their first dimension, or nothing if the calls
// have to be made one by one.
#pragma once
#include <span>
#include <vector>

#include "facula/op/operator.h"

namespace facula::op {

class Batched {
 public:
  // `physical`: the arguments; the tensors that `batched` marks (by tensor slot) have the batch in front. `logical`:
  // the arguments of one call of the batch, whose tensors have no data.
  Batched(const Operator& o, std::span<const Value> logical, std::span<const Value> physical,
          std::span<const bool> batched, SymInt size)
      : logical_(o, logical), physical_(o, physical), batched_(batched), size_(size) {}
  const Call& logical() const { return logical_; }
  SymInt size() const { return size_; }
  bool is_batched(ParameterName arg, int item = 0) const {
    return batched_[size_t(physical_.tensor_slot(arg, item))];
  }
  // The physical argument: with the batch in front if it is batched; undefined if None.
  Tensor operator[](ParameterName arg) const { return physical_.tensor(arg); }
  // The same with the batch in front in any case, by expansion if necessary; undefined if None.
  Tensor whole(ParameterName arg) const;
  const Call& physical() const { return physical_; }
  std::span<const bool> batched() const { return batched_; }

 private:
  Call logical_, physical_;
  std::span<const bool> batched_;
  SymInt size_;
};

// A view of t with a batch of `size` in front.
Tensor with_batch(const Tensor& t, SymInt size);
// The rule of operators that treat leading dimensions as a batch already: every tensor gets the batch in front, and
// non-negative values of `dim` count it.
Results batched_in_front(const Batched& b);

}  // namespace facula::op
