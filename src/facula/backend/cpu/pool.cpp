// Gradients of pools.
#include "facula/backend/cpu/cpu.h"
#include "facula/op/registry.h"

namespace facula::backend::cpu {

// Where channels lie side by side lanes ask the windows of their elements. Along rows of an image such lanes
// would gather; there each window adds its gradient where it belongs.
Results max_pool2d_backward(const Call& c, Out out) {
  static const op::Operator &gather = op::get("_max_pool2d_gather"),
                            &scatter = op::get("_max_pool2d_scatter");
  Tensor grad = c.tensor("grad"), taps = c.tensor("taps");
  grad = grad.alias(grad.sizes(), grad.strides(), grad.offset());
  std::vector<op::Value> args(c.args().begin(), c.args().end());
  args[0] = grad;
  if (!out[0].is_contiguous()) {
    op::call(gather, args, op::Form::out, out);
    return Results(out[0]);
  }
  auto sizes = out[0].sizes();
  Dims planes(sizes.first(sizes.size() - 1));
  planes.back() = product(sizes.last(2));
  Tensor to = out[0].alias(planes, contiguous_strides(planes), out[0].offset());
  if (to.dtype() == compute_type(grad.dtype())) op::call(scatter, args, op::Form::out, std::span(&to, 1));
  else copy(to, op::call(scatter, args)[0]);  // summed in float32, rounded once
  return Results(out[0]);
}

}  // namespace facula::backend::cpu
