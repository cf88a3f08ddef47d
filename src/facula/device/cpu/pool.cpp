// Gradients of pools.
#include "facula/codegen/kernel.h"
#include "facula/device/cpu/cpu.h"
#include "facula/op/registry.h"

namespace facula::device::cpu {

namespace {

// Gathering is fast with lanes along the rows of an image if there are few windows per element, if their strides divide
// vectors (the elements of one window are then the same lanes in each), and if a row fills a vector. Bytes under masks
// need AVX-512.
bool asks_quickly(const Call& c, const Tensor& taps, const SymInt& width) {
  constexpr int64_t kWindows = 9, kStride = 4;
  if (codegen::vector_lanes() < 16 || width.concrete() < 16 || taps.dtype() != DType::UInt8) return false;
  int64_t windows = 1, along = 1;  // the stride along rows
  auto parameter = [&](const char* arg, size_t k) { return c.ints(arg, 2)[k].concrete(); };
  for (size_t k : {0, 1}) {
    int64_t kernel = parameter("kernel_size", k);
    int64_t stride = c.ints("stride").empty() ? kernel : parameter("stride", k);
    windows *= parameter("dilation", k) == 1 ? (kernel + stride - 1) / stride : kernel;
    along = stride;
  }
  return windows <= kWindows && along <= kStride && along != 3;
}

}  // namespace

// Each element gathers the gradients of its windows, with channels in the lanes or along rows, where that is fast.
// Otherwise each window scatters its gradient.
Results max_pool2d_backward(const Call& c, Out out) {
  static const op::Operator &gather = op::get("_max_pool2d_gather"),
                            &scatter = op::get("_max_pool2d_scatter");
  Tensor grad = c.tensor("grad"), taps = c.tensor("taps");
  grad = grad.alias(grad.sizes(), grad.strides(), grad.offset());
  std::vector<op::Value> args(c.args().begin(), c.args().end());
  args[0] = grad;
  if (!out[0].is_contiguous() || asks_quickly(c, taps, out[0].sizes().back())) {
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

}  // namespace facula::device::cpu
