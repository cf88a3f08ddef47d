// vmap: calls of operators on tensors that stand for one of a batch become calls that do the work of all.
//
// There is one rule for each kind of operator, and none for an operator by its name:
//   pointwise       the operands' dimensions are aligned behind the batch; broadcasting does the rest
//   loop            the same loop with an index in front (derive.h)
//   view            the same steps, one dimension further in (derive.h)
//   composite       a composite of the body's calls (derive.h)
//   procedure       the calls of the body
//   library         the rule that the definition gives (Definer::batched), else the calls one by one, stacked
//   data-dependent  raises
// A body that looks at elements, and a call that its rule refuses, are made one by one too.
// What is the same in all calls of the batch is left as it is and computed once.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "facula/autograd/batch.h"
#include "facula/batch/randomness.h"

namespace facula::batch {

class Level final : public autograd::BatchLevel {
 public:
  Level(SymInt size, Randomness randomness, bool same_variables = false)
      : BatchLevel(size, same_variables), randomness_(randomness) {}
  op::Results take(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                   std::span<const Tensor> out) override;
  std::unique_ptr<BatchLevel> another() const override {
    return std::make_unique<Level>(size(), randomness_, same_variables());
  }
  // In and out of the level: t with its dimension `dim` as the batch; the batch of t as dimension `dim`, expanded
  // if t is the same in all calls. Both belong outside of the level.
  Tensor enter(const Tensor& t, int dim) const;
  Tensor leave(const Tensor& t, int dim) const;
  bool has(const TensorImpl* t) const { return t && autograd::batch_level(t) == id(); }
  bool has(const Tensor& t) const { return has(t.impl()); }

 private:
  op::Results within(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                     std::span<const Tensor> out);
  bool tangents_differ(std::span<const op::Value> args) const;
  op::Results functional(const op::Operator& o, std::span<const op::Value> args);
  op::Results by_kind(const op::Operator& o, std::span<const op::Value> args);
  op::Results in_place(const op::Operator& o, std::span<const op::Value> args);
  op::Results drawn(const op::Operator& o, std::span<const op::Value> args);
  op::Results inside(const std::function<op::Results(const op::Call&)>& body, const op::Operator& o,
                     std::span<const op::Value> args);
  op::Results pointwise(const op::Operator& o, std::span<const op::Value> args, op::Form form);
  op::Results derived(const op::Operator& o, std::span<const op::Value> args);
  op::Results one_by_one(const op::Operator& o, std::span<const op::Value> args);
  op::Results by_rule(const op::Operator& o, std::span<const op::Value> args);
  op::Results wrapped(op::Results physical) const;
  op::Results as_batch(op::Results results) const;
  [[noreturn]] void refuse_write(const op::Operator& o, const Tensor& target);
  bool any(std::span<const op::Value> args) const;

  Randomness randomness_;
  op::Mode* caller_ = nullptr;  // the mode that saw the present call first: autocast, an inner level
  // Into this memory, which is the same for all calls of the batch, a body wrote what differs from call to call.
  const StorageImpl* refused_ = nullptr;
  bool final_ = false;  // an error that is not one of the rule's
};

// How many calls of operators on this thread were made one by one, because no rule does their work.
uint64_t calls_one_by_one();

}  // namespace facula::batch
