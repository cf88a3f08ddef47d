// A composite whose results something else has made (below.h), on the tape: nothing was saved, so its gradient computes
// anew, from the operands, what it needs.
#include <mutex>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/node.h"
#include "facula/base/fork.h"
#include "facula/graph/passes.h"
#include "facula/run/composite.h"
#include "facula/run/entry.h"

namespace facula::run {

using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

// Its outputs are the gradients alone.
using Gradients = std::shared_ptr<const graph::Joint>;

Gradients gradients_of(const Operator& o, std::span<const Value> args, const std::vector<int>& wrt, Key key) {
  static TableMutex mutex;
  static Bounded<Key, Gradients, KeyHash> known(kMaxPrograms);
  key.push_back(reinterpret_cast<uint64_t>(&o));
  for (int i : wrt) key.push_back(uint64_t(i));
  {
    std::lock_guard lock(mutex);
    if (auto* found = known.find(key)) return *found;
  }
  auto joint = std::make_shared<graph::Joint>(graph::differentiate(trace_call(o, args, {}), wrt));
  auto& outputs = joint->graph.outputs;
  outputs.erase(outputs.begin(), outputs.begin() + joint->forward_outputs);
  graph::remove_dead(joint->graph);
  std::lock_guard lock(mutex);
  return known.put(std::move(key), std::move(joint));
}

class AgainNode final : public autograd::Node {
 public:
  AgainNode(std::string name, Gradients g, std::span<const Value> operands, const Results& made)
      : Node(int(made.size())), name_(std::move(name)), gradients_(std::move(g)) {
    for (int i : gradients_->wrt) add_edge(Tensor(Ref<TensorImpl>::share(operands[size_t(i)].tensor)));
    for (auto& v : operands) {
      inputs_.emplace_back();
      if (v.tag == Tag::tensor)
        inputs_.back().tensor = autograd::Saved(Tensor(Ref<TensorImpl>::share(v.tensor)), false);
      else if (!v.is_none()) inputs_.back().number = op::wrapped_number(v.number());
    }
    for (auto& t : made.all()) {
      results.push_back({Dims(t.sizes()), t.dtype(), t.device()});
      strides_.push_back(Dims(t.strides()));
    }
  }
  std::string own_name() const override { return name_; }
  std::vector<Tensor> apply(std::vector<Tensor> grads, bool) override {
    if (inputs_.empty()) raise_freed();
    std::vector<Tensor> given;
    for (auto& i : inputs_)
      given.push_back(i.tensor.defined() ? i.tensor.unpack(Ref<Node>::share(this)) : i.number);
    for (int k : gradients_->tangent_of)
      given.push_back(grads[size_t(k)].defined() ? as_results_lie(grads[size_t(k)], size_t(k))
                                                 : autograd::zeros_of(results[size_t(k)]));
    return graph::interpret(gradients_->graph, given);
  }
  void release_saved() override { inputs_.clear(); }

 private:
  struct Input {
    autograd::Saved tensor;
    Tensor number;
  };
  // The trace took gradients to lie as results do.
  Tensor as_results_lie(const Tensor& grad, size_t k) const {
    if (Dims(grad.strides()) == strides_[k]) return grad;
    Tensor like = Tensor::empty_strided(grad.sizes(), strides_[k], grad.dtype(), grad.device());
    return autograd::invoke("copy", {like, grad}, op::Form::in_place);
  }

  std::string name_;
  Gradients gradients_;
  std::vector<Dims> strides_;
  std::vector<Input> inputs_;
};

}  // namespace

void record_composite(const Operator& o, std::span<const Value> args, Results& results) {
  Key key;
  Operands operands;
  key_of(o, args, Purpose::recorded, key, operands);
  std::vector<int> wrt;
  for (size_t i = 0; i < operands.values.size(); ++i)
    if (wants_gradient(operands.values[i])) wrt.push_back(int(i));
  if (wrt.empty()) return;
  auto gradients = gradients_of(o, args, wrt, std::move(key));
  auto node = make_ref<AgainNode>(autograd::node_name(o, args), gradients, operands.values, results);
  for (int k : gradients->tangent_of) autograd::set_history(results[size_t(k)], node, k);
}

}  // namespace facula::run
