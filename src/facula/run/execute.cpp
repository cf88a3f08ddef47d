#include "facula/run/execute.h"

#include <memory>

#include "facula/codegen/kernel.h"
#include "facula/run/execution_state.h"
#include "facula/run/failed_check.h"
#include "facula/run/program.h"

namespace facula::run {

using op::Results;
using op::Tag;

namespace {

// Runs a plan that is one kernel from the inputs to the results.
Results execute_directly(const Plan& plan, const NumberedGraph& g, std::span<const op::Value> inputs,
                         std::span<const Tensor> out) {
  auto& d = *plan.direct;
  void* buffers[Plan::kDirect];
  Number numbers[Plan::kDirect];
  Results results;
  for (size_t k = 0; k < d.inputs.size(); ++k) {
    auto& v = inputs[size_t(d.inputs[k])];
    if (v.tag == Tag::tensor) {
      buffers[k] = v.tensor->data_ptr();
    } else {
      v.number().store(op::operand_dtype(v), numbers[k].bytes);
      buffers[k] = numbers[k].bytes;
    }
  }
  for (size_t k = 0; k < d.outputs.size(); ++k) {
    auto b = size_t(d.outputs[k]);
    if (b >= Plan::kDirect) {
      auto& input = inputs[b - Plan::kDirect];
      results.push_back(input.tag == Tag::tensor ? Tensor(Ref<TensorImpl>::share(input.tensor)) : Tensor());
      continue;
    }
    Tensor t = k < out.size() && out[k].defined() ? out[k] : fresh(plan.form(g.outputs[k]));
    buffers[b] = t.impl()->data_ptr();
    results.push_back(std::move(t));
  }
  try {
    for (auto& l : plan.kernels[0].launches)
      codegen::launch(*l.kernel, l.work, buffers, l.params.data(), g.name.c_str());
  } catch (const Error& e) { throw as_of_operator(e, g, g.inputs, g.outputs); }
  for (auto& t : results.all())
    if (t.defined() && t.impl()->storage) t.impl()->storage->note_written();
  return results;
}

[[gnu::noinline]] Results execute_in_state(const Plan& plan, const NumberedGraph& g,
                                           std::span<const op::Value> inputs, std::span<const Tensor> out) {
  auto& idle = plan.outline->idle;
  auto state = idle.take(plan);
  if (!state) state = std::make_unique<ExecutionState>(*plan.outline, g);
  auto results = state->run(plan, inputs, out);
  idle.give(std::move(state));
  return results;
}

}  // namespace

Results execute(const Plan& plan, const NumberedGraph& g, std::span<const op::Value> inputs,
                std::span<const Tensor> out, bool logical) {
  if (plan.direct && (logical || (!any_physical_layout(inputs) && !any_physical_layout(out))))
    return execute_directly(plan, g, inputs, out);
  return execute_in_state(plan, g, inputs, out);
}

}  // namespace facula::run
