// Tensors that stand for one of a batch (vmap). Such a tensor has the sizes of one, no data, and a physical tensor
// with all of them, the batch its first dimension. Operators are called on them through the level they belong to
// (batch/level.h); the tape sees physical tensors only, so gradients need no rules for batches.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "facula/op/call.h"
#include "facula/tensor/tensor.h"

namespace facula::autograd {

// A level of vmap on this thread, a mode while it is entered. Levels nest: a physical tensor may stand for one of
// a batch of a level further out.
class BatchLevel : public op::Mode {
 public:
  // `same_variables`: what a function inside is differentiated for is the same in all calls of the batch.
  explicit BatchLevel(SymInt size, bool same_variables = false);
  ~BatchLevel() override;
  BatchLevel(const BatchLevel&) = delete;
  SymInt size() const { return size_; }
  uint64_t id() const { return id_; }
  bool same_variables() const { return same_variables_; }
  int number() const { return number_; }          // 1 for the outermost
  op::Mode* beneath() const { return beneath_; }  // takes the calls on physical tensors; null: none

  static BatchLevel* find(uint64_t id);  // of this thread; null: it has ended
  static BatchLevel* innermost();        // of this thread; null: none
  static BatchLevel* outermost();
  // A level like this, beneath the mode that is current; it ends with the pointer.
  virtual std::unique_ptr<BatchLevel> another() const = 0;
  void put_beneath(op::Mode* mode) { beneath_ = mode; }
  // Outside of the innermost level for a scope.
  class Beneath {
   public:
    Beneath();
    ~Beneath();

   private:
    BatchLevel* level_;
    With beneath_;
  };

 private:
  SymInt size_;
  bool same_variables_;
  uint64_t id_;
  int number_;
  op::Mode* beneath_;
};

// The level that t belongs to, or 0; it may have ended.
uint64_t batch_level(const TensorImpl* t);
inline uint64_t batch_level(const Tensor& t) { return batch_level(t.impl()); }
const Tensor& physical(const Tensor& t);  // of a tensor that belongs to a level
// One of the batch `physical`, whose first dimension is the batch.
Tensor one_of(const Tensor& physical, const BatchLevel& level);
void set_physical(const Tensor& t, const Tensor& physical);  // gives t another batch, and its sizes
// t in every level of this thread, but those of same_variables: a variable that an inner function is differentiated for has a gradient for each
// call of the batch.
Tensor in_every_level(const Tensor& t);
// Uninitialised memory with these sizes and strides for each call of the batches that `like` belongs to.
Tensor empty_for_each(const Tensor& like, SymSpan sizes, SymSpan strides, DType dtype, Device device);

// Forward mode within vmap (forward.h). The tangent of a tensor that belongs to a level belongs to it too, and its physical
// tensor carries the tangent's. A tensor that belongs to no level carries its tangent itself, which may belong to any:
// so a function that is pushed forward along a batch of directions is computed once.
Tensor make_dual(const Tensor& t, const Tensor& tangent);  // a view of t with this tangent
Tensor tangent_in_levels(const Tensor& t);
void set_tangent_in_levels(const Tensor& t, const Tensor& tangent);
// True if t does not belong to the level and carries a tangent that does.
bool tangent_belongs(const TensorImpl* t, const BatchLevel& level);
// Returns such a t as a tensor of the level, for calls with other tensors of it.
Tensor with_its_tangent(const Tensor& t, const BatchLevel& level);
bool any_batched(std::span<const Tensor> tensors);

// autograd::grad, if some outputs belong to a level.
std::vector<Tensor> batched_grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                                 std::span<const Tensor> grads, bool retain_graph, bool create_graph,
                                 bool allow_unused);

}  // namespace facula::autograd
