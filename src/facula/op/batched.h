// A call that stands for a batch of calls (vmap): what the rule of an operator sees that says itself how one call
// does the work of all, `Definer::batched`. Its results have the batch as their first dimension; it gives none where
// the calls have to be made one by one.
#pragma once
#include <span>
#include <vector>

#include "facula/op/operator.h"

namespace facula::op {

class Batched {
 public:
  // `physical`: the arguments, with the batch in front of the tensors that `batched` marks, by tensor slot; `logical`:
  // those of one call of the batch, whose tensors have no data.
  Batched(const Operator& o, std::span<const Value> logical, std::span<const Value> physical,
          std::span<const bool> batched, SymInt size)
      : logical_(o, logical), physical_(o, physical), batched_(batched), size_(size) {}
  const Call& logical() const { return logical_; }
  SymInt size() const { return size_; }
  bool is_batched(ParameterName arg, int item = 0) const {
    return batched_[size_t(physical_.tensor_slot(arg, item))];
  }
  // As it is: with the batch in front if it is batched; undefined if None.
  Tensor operator[](ParameterName arg) const { return physical_.tensor(arg); }
  // With the batch in front, expanded if need be; undefined if None.
  Tensor whole(ParameterName arg) const;
  const Call& physical() const { return physical_; }
  std::span<const bool> batched() const { return batched_; }

 private:
  Call logical_, physical_;
  std::span<const bool> batched_;
  SymInt size_;
};

// t with a batch of `size` in front, as a view.
Tensor with_batch(const Tensor& t, SymInt size);
// The rule of operators whose leading dimensions are a batch already: every tensor gets the batch, and what `dim` says
// counts it.
Results batched_in_front(const Batched& b);

}  // namespace facula::op
