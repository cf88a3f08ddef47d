// A call's arguments with other tensors.
#pragma once
#include <deque>
#include <vector>

#include "facula/op/operator.h"

namespace facula::batch {

// The arguments of a call with its tensors replaced: f(slot, Tensor) by tensor slot. Numbers stay, though a trace gives
// them as tensors.
class Replaced {
 public:
  template <class F>
  Replaced(const op::Operator& o, std::span<const op::Value> args, F&& f)
      : values_(args.begin(), args.end()) {
    size_t slot = 0;
    for (size_t k = 0; k < values_.size(); ++k) {
      auto& p = o.schema.parameters[k];
      if (p.type != op::Type::Tensor) continue;
      auto& v = values_[k];
      if (v.tag == op::Tag::tensors) {
        auto& list = lists_.emplace_back();
        for (auto* t : args[k].tensors())
          list.push_back(kept(t ? f(slot, Tensor(Ref<TensorImpl>::share(t))) : Tensor())), ++slot;
        v = op::Value(std::span<TensorImpl* const>(list));
      } else if (!p.list || v.tag == op::Tag::tensor) {
        if (v.tag == op::Tag::tensor) v = op::Value(kept(f(slot, Tensor(Ref<TensorImpl>::share(v.tensor)))));
        ++slot;
      }
    }
    slots_ = slot;
  }
  std::span<const op::Value> values() const { return values_; }
  size_t slots() const { return slots_; }

 private:
  TensorImpl* kept(Tensor t) {
    alive_.push_back(std::move(t));
    return alive_.back().impl();
  }
  std::vector<op::Value> values_;
  std::deque<std::vector<TensorImpl*>> lists_;
  std::deque<Tensor> alive_;
  size_t slots_ = 0;
};

}  // namespace facula::batch
