// Composites whose results an interposer computed (interpose.h), on the tape: nothing was saved, so that the gradient
// recomputes what it needs from the operands.
#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/node.h"
#include "facula/run/call_cache.h"
#include "facula/run/composite.h"
#include "facula/run/operands.h"
#include "facula/run/pipeline.h"
#include "facula/run/trace_call.h"

namespace facula::run {

using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

namespace {

// The joint graph of a call, whose outputs are the gradients alone. It serves the calls of one complete layout.
struct RecomputedGradients final : TracedCall {
  explicit RecomputedGradients(graph::Joint j) : joint(std::move(j)) {}
  bool accepts(std::span<const Value>) const override { return true; }
  graph::Joint joint;
};
using Gradients = std::shared_ptr<const RecomputedGradients>;

Gradients gradients_of(const Operator& o, std::span<const Value> args, const std::vector<int>& wrt, Key key) {
  for (int i : wrt) key.push_back(uint64_t(i));
  return traced_call<RecomputedGradients>(o, std::move(key), {}, [&] {
    auto joint = pipeline::differentiate(trace_call(o, args, {}), wrt, o.name());
    auto& outputs = joint.graph.outputs;
    outputs.erase(outputs.begin(), outputs.begin() + joint.forward_outputs);
    graph::remove_dead(joint.graph);
    return std::make_shared<const RecomputedGradients>(std::move(joint));
  });
}

class RecomputedNode final : public autograd::Node {
 public:
  RecomputedNode(std::string name, Gradients g, std::span<const Value> operands, const Results& all)
      : Node(int(all.size())), name_(std::move(name)), gradients_(std::move(g)) {
    for (int i : gradients_->joint.wrt) add_edge(Tensor(Ref<TensorImpl>::share(operands[size_t(i)].tensor)));
    for (auto& v : operands) {
      inputs_.emplace_back();
      if (v.tag == Tag::tensor)
        inputs_.back().tensor = autograd::Saved(Tensor(Ref<TensorImpl>::share(v.tensor)), false);
      else if (!v.is_none()) inputs_.back().number = op::wrapped_number(v.number());
    }
    for (auto& t : all.all()) {
      results.push_back({Dims(t.sizes()), t.dtype(), t.device()});
      strides_.push_back(Dims(t.strides()));
    }
  }
  std::string own_name() const override { return name_; }
  std::vector<Tensor> apply(std::vector<Tensor> grads, bool) override {
    if (inputs_.empty()) raise_freed();
    std::vector<Tensor> arguments;
    for (auto& i : inputs_)
      arguments.push_back(i.tensor.defined() ? i.tensor.unpack(Ref<Node>::share(this)) : i.number);
    for (int k : gradients_->joint.tangent_of)
      arguments.push_back(grads[size_t(k)].defined() ? with_result_strides(grads[size_t(k)], size_t(k))
                                                     : autograd::zeros_of(results[size_t(k)]));
    return graph::interpret(gradients_->joint.graph, arguments);
  }
  void release_saved() override { inputs_.clear(); }

 private:
  struct Input {
    autograd::Saved tensor;
    Tensor number;
  };
  // The trace assumed that gradients have the strides of the results.
  Tensor with_result_strides(const Tensor& grad, size_t k) const {
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

void record_recomputed(const Operator& o, std::span<const Value> args, Results& results) {
  Key key;
  Operands operands;
  key_of(o, args, Purpose::recorded, key, operands);
  std::vector<int> wrt;
  for (size_t i = 0; i < operands.values.size(); ++i)
    if (wants_gradient(operands.values[i])) wrt.push_back(int(i));
  if (wrt.empty()) return;
  auto gradients = gradients_of(o, args, wrt, std::move(key));
  auto node = make_ref<RecomputedNode>(autograd::node_name(o, args), gradients, operands.values, results);
  for (int k : gradients->joint.tangent_of) autograd::set_history(results[size_t(k)], node, k);
}

}  // namespace facula::run
