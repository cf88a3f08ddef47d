#include "facula/autograd/function.h"

#include <algorithm>

#include "facula/autograd/calls.h"

namespace facula::autograd {

namespace {
bool among(const std::vector<Tensor>& list, const Tensor& t) {
  return std::any_of(list.begin(), list.end(), [&](auto& x) { return x.is_same(t); });
}
}  // namespace

FunctionNode::FunctionNode(std::string name, std::vector<Tensor> inputs)
    : Node(1), name_(std::move(name)), inputs_(std::move(inputs)) {
  auto* trace = grad_enabled() ? Tracing::current() : nullptr;
  if (trace) traced_ = TracedFunction{name_};
  for (auto& t : inputs_) {
    bool wanted = grad_enabled() && t.defined() && t.requires_grad();
    wanted_.push_back(wanted);
    recording_ = recording_ || wanted;
    if (trace) {
      if (!t.defined()) continue;
      traced_->inputs.push_back(t);
      traced_->needs.push_back(wanted);
    } else if (wanted) {
      add_edge(t);
    } else {
      edges_.emplace_back();
    }
  }
  if (trace) trace->enter(*traced_);
}

std::vector<Tensor> FunctionNode::apply(std::vector<Tensor> grads, bool) {
  if (materialize_)
    for (size_t k = 0; k < grads.size() && k < results.size(); ++k)
      if (!grads[k].defined()) grads[k] = zeros_of(results[k]);
  applying_ = true;
  struct Done {
    bool& flag;
    ~Done() { flag = false; }
  } done{applying_};
  return backward(std::move(grads));
}

void FunctionNode::release_saved() {
  released_ = released_ || !saved_.empty();
  std::vector<Saved> dropped;
  dropped.swap(saved_);
}

std::vector<Tensor> FunctionNode::saved() {
  if (released_) raise_freed();
  std::vector<Tensor> out;
  if (saved_.empty()) return to_save_;
  for (auto& s : saved_) out.push_back(s.unpack(Ref<Node>::share(this)));
  return out;
}

std::vector<Tensor> FunctionNode::finish_traced(std::vector<Tensor> outputs) {
  auto& f = *traced_;
  f.outputs = std::move(outputs);
  f.materialize = materialize_;
  for (auto& t : f.outputs) {
    f.carries.push_back(t.defined() && is_differentiable(t.dtype()) && !among(non_differentiable_, t));
    f.dirty.push_back(t.defined() && among(dirty_, t));
    results.push_back(t.defined() ? ResultMeta{Dims(t.sizes()), t.dtype(), t.device()} : ResultMeta{});
  }
  f.attach = [&](const std::vector<Tensor>& given) {
    for (auto& s : to_save_)
      for (size_t k = 0; k < given.size(); ++k)
        if (s.defined() && s.is_same(f.outputs[k]) && !among(f.inputs, s)) s = given[k];
    return to_save_;
  };
  f.backward = [&](std::vector<Tensor> grads, const std::vector<bool>& needs) {
    size_t k = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) wanted_[i] = inputs_[i].defined() && needs[k++];
    for (size_t r = 0; materialize_ && r < grads.size(); ++r)
      if (!grads[r].defined()) grads[r] = zeros_of(results[r]);
    auto all = backward(std::move(grads));
    all.resize(inputs_.size());
    std::vector<Tensor> found;
    for (size_t i = 0; i < all.size(); ++i)
      if (inputs_[i].defined()) found.push_back(all[i]);
    return found;
  };
  auto given = Tracing::current()->function(f);
  to_save_.clear();
  inputs_.clear();
  traced_.reset();
  return given;
}

std::vector<Tensor> FunctionNode::finish(std::vector<Tensor> outputs) {
  if (traced_) return finish_traced(std::move(outputs));
  for (auto& t : dirty_) {
    runtime_check(among(inputs_, t), name_.c_str())
        << "mark_dirty names a tensor that is no input of forward";
    runtime_check(among(outputs, t), name_.c_str())
        << "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must all be outputs of the Function.";
    check_in_place(name_.c_str(), t, recording_);
    t.version_counter()->writer = "a custom function";
    t.bump_version();
  }
  auto node = Ref<Node>::share(this);
  for (size_t k = 0; k < outputs.size(); ++k) {
    Tensor& t = outputs[k];
    results.push_back(t.defined() ? ResultMeta{Dims(t.sizes()), t.dtype(), t.device()}
                                  : ResultMeta{{}, DType::Float32, {}});
    if (!t.defined()) continue;
    bool dirty = among(dirty_, t), input = among(inputs_, t);
    bool carries = is_differentiable(t.dtype()) && !among(non_differentiable_, t);
    if (!recording_) continue;
    if (!carries) {
      if (input && !dirty) t = t.detached();
      continue;
    }
    if (dirty) {
      Meta* m = meta_of(t);
      runtime_check(outputs.size() == 1 || !m || !m->base.defined(), name_.c_str())
          << "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one Tensor.";
      if (m && m->base.defined()) {
        auto at = std::find_if(inputs_.begin(), inputs_.end(), [&](auto& x) { return x.is_same(t); }) -
                  inputs_.begin();
        internal_check(at == 0) << name_
                                << ": a view that is modified in place must be the first tensor argument";
        rebase_history(t, node);
      } else {
        set_history(t, node, int(k));
      }
      continue;
    }
    if (input) {
      Tensor base = t;
      t = base.alias(base.sizes(), base.strides(), base.offset());
    }
    set_history(t, node, int(k));
  }
  if (recording_) {
    for (auto& t : to_save_) {
      auto at =
          std::find_if(outputs.begin(), outputs.end(), [&](auto& x) { return t.defined() && x.is_same(t); });
      saved_.push_back(Saved(t, at != outputs.end() && meta_of(t) && meta_of(t)->node.get() == this,
                             int(at - outputs.begin())));
    }
    to_save_.clear();
  }
  inputs_.clear();
  dirty_.clear();
  non_differentiable_.clear();
  return outputs;
}

}  // namespace facula::autograd
