// Gradients of convolutions.
#include "facula/catalog/conv_helpers.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::conv_helpers;

namespace {
// A gradient's sizes must be those of the forward result.
void check_gradient(const Call& c, SymSpan input, SymSpan weight) {
  Dims expected = conv_sizes(c.name(), input, weight, window(c));
  auto given = c.sizes("grad");
  runtime_check(given.size() == expected.size() && std::equal(given.begin(), given.end(), expected.begin()),
                c.name())
      << "expected grad of shape " << to_string(SymSpan(expected)) << " for input " << to_string(input)
      << " and weight " << to_string(weight) << ", got " << to_string(given);
}
// The window that reads pixel (y, x) with tap (ky, kx), and whether there is one.
Tap written_by(const Window& w, Expr y, Expr x, Expr ky, Expr kx, SymInt height, SymInt width) {
  Expr valid = constant(true, DType::Bool), o[2], n[2] = {n_of(height), n_of(width)}, at[2] = {y, x},
       tap[2] = {ky, kx};
  for (int k = 0; k < 2; ++k) {
    Expr start = at[k] + Scalar(w.padding[k]) - tap[k] * Scalar(w.dilation[k]);
    o[k] = floordiv(start, Scalar(w.stride[k]));
    valid = valid & eq(o[k] * Scalar(w.stride[k]), start) & inside(o[k], n[k]);
    o[k] = clipped(o[k], n[k]);
  }
  return {o[0], o[1], valid};
}
Expr input_gradient_element(const LoopCall& c, Index i) {
  Window w = window(c);
  auto grad = c.sizes("grad"), weight = c.sizes("weight");
  size_t r = i.size() - 3;
  Index batch(i.begin(), i.begin() + std::ptrdiff_t(r));
  SymInt per_group = weight[0] / SymInt(w.groups);
  Expr group = floordiv(i[r], n_of(weight[1])), channel = i[r] - group * n_of(weight[1]);
  return reduce(c, monoid::sum, {per_group, weight[2], weight[3]}, [&](Index k) {
    Tap t = written_by(w, i[r + 1], i[r + 2], k[1], k[2], grad[r + 1], grad[r + 2]);
    Expr out = group * n_of(per_group) + k[0];
    Expr g = c.load("grad", pixel(batch, out, t.y, t.x));
    return select(t.valid, g * c.load("weight", {out, channel, k[1], k[2]}), zero_of(g));
  });
}
Expr weight_gradient_element(const LoopCall& c, Index i) {
  Window w = window(c);
  auto grad = c.sizes("grad"), input = c.sizes("input"), weight = c.ints("weight_size");
  bool batched = grad.size() == 4;
  size_t r = batched ? 1 : 0;
  Expr group = floordiv(i[0], n_of(weight[0] / SymInt(w.groups)));
  SymInt images = batched ? grad[0] : SymInt(int64_t(1));
  return reduce(c, monoid::sum, {images, grad[r + 1], grad[r + 2]}, [&](Index k) {
    Tap t = read_at(w, k[1], k[2], i[2], i[3], input[r + 1], input[r + 2]);
    Index batch;
    if (batched) batch.push_back(k[0]);
    Expr x = c.load("input", pixel(batch, group * n_of(weight[1]) + i[1], t.y, t.x));
    return select(t.valid, x * c.load("grad", pixel(batch, i[0], k[1], k[2])), zero_of(x));
  });
}
Tensor forward(const Tensor& input, const Tensor& weight, MaybeTensor bias, const Call& c) {
  return conv2d(input, weight, bias, c.ints("stride"), c.ints("padding"), c.ints("dilation"),
                c.integer("groups").guard_int());
}
Dims weight_gradient_sizes(const Call& c) {
  check_dtypes(c.name(), c.tensor("grad"), "Gradient", c.tensor("input"), "input");
  check_gradient(c, c.sizes("input"), c.ints("weight_size"));
  return Dims(c.ints("weight_size"));
}
// Gradients of the pair (weight, bias) gradient or of the weight gradient alone.
Grads second_weight_gradients(const Vjp& v) {
  auto& c = v.call();
  Grads out(2);
  Tensor gw = v.grad(0), grad_bias = c.op().schema.returns.size() > 1 ? v.grad(1) : Tensor();
  if (v.needs("grad")) {
    if (gw.defined())
      out[0] =
          forward(conjugate(v["input"]), gw, grad_bias.defined() ? MaybeTensor(grad_bias) : MaybeTensor(), c);
    else if (grad_bias.defined()) {
      Dims sizes{c.size("grad", -3), SymInt(int64_t(1)), SymInt(int64_t(1))};
      out[0] = expand(view(grad_bias, sizes), c.sizes("grad"));
    }
  }
  if (v.needs("input") && gw.defined())
    out[1] = input_gradient(conjugate(v["grad"]), conjugate(gw), c.sizes("input"), c);
  return out;
}
Results input_gradients(const Batched& b) {
  auto& c = b.logical();
  if (!is_plain(b, "grad")) return {};
  Steps s(c);
  Tensor grad = images(b, "grad");
  Dims sizes(c.ints("input_size"));
  if (sizes.size() == 3) sizes.insert(0, SymInt(int64_t(1)));
  Dims whole(sizes);
  whole[0] *= b.size();
  Tensor x = b.is_batched("weight")
                 ? _conv2d_batch_input(grad, b["weight"], sizes, s.stride, s.padding, s.dilation, s.groups)
                 : parted(convolution_backward_input(folded(grad), b["weight"], whole, s.stride, s.padding,
                                                     s.dilation, s.groups),
                          b.size(), sizes[0]);
  return Results(as_called(b, "grad", x));
}
Tensor weight_gradients(const Batched& b) {
  Steps s(b.logical());
  return _conv2d_batch_weight(images(b, "grad"), images(b, "input"), b.logical().ints("weight_size"),
                              s.stride, s.padding, s.dilation, s.groups);
}
}  // namespace

FACULA_FAMILY(conv_backward) {
  define(
      "convolution_backward_input(Tensor grad, Tensor weight, SymInt[] input_size, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc("The gradient of conv2d for its input: the transposed convolution of grad.")
      .grad_name("Convolution")
      .bind(hidden)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        check_dtypes(c.name(), c.tensor("grad"), "Gradient", c.tensor("weight"), "weight");
        check_gradient(c, c.ints("input_size"), c.sizes("weight"));
        return Dims(c.ints("input_size"));
      })
      .format_of({"grad", "weight"})
      .channels_last(ChannelsLast::chooses)
      .library("conv2d_backward_input")
      .batched(input_gradients)
      .reference(input_gradient_element)
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        return grads(v.needs("grad") ? forward(v.grad(), conjugate(v["weight"]), nullopt, c) : Tensor(),
                     v.needs("weight")
                         ? weight_gradient(conjugate(v["grad"]), conjugate(v.grad()), c.sizes("weight"), c)
                         : Tensor());
      })
      .samples(
          {"grad[1, 2, 3, 3], weight[2, 2, 2, 2], input_size=[1, 2, 4, 4], stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1"});
  define(
      "convolution_backward_weight(Tensor grad, Tensor input, SymInt[] weight_size, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc("The gradient of conv2d for its weight.")
      .bind(hidden)
      .dtypes(d::numeric)
      .shape(weight_gradient_sizes)
      .channels_last(ChannelsLast::packs)
      .library("conv2d_backward_weight")
      .batched(
          [](const Batched& b) { return is_plain(b, "grad") ? Results(weight_gradients(b)) : Results(); })
      .reference(weight_gradient_element)
      .vjp(second_weight_gradients)
      .samples(
          {"grad[1, 2, 3, 3], input[1, 2, 4, 4], weight_size=[2, 2, 2, 2], stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1"});
  define(
      "convolution_backward_weight_bias(Tensor grad, Tensor input, SymInt[] weight_size, int[2] stride, int[2] padding, int[2] dilation, int groups) "
      "-> (Tensor grad_weight, Tensor grad_bias)")
      .doc("The gradients of conv2d for its weight and bias.")
      .bind(hidden)
      .dtypes(d::numeric)
      .shapes([](const Call& c) {
        Dims w = weight_gradient_sizes(c), b{w[0]};
        return std::vector<Dims>{w, b};
      })
      .channels_last(ChannelsLast::packs)
      .library("conv2d_backward_weight")
      .batched([](const Batched& b) {
        if (!is_plain(b, "grad")) return Results();
        return Results{weight_gradients(b), sum(images(b, "grad"), Sizes{1, 3, 4})};
      })
      .reference([](const Tensor& grad, const Tensor& input, Sizes weight_size, Sizes stride, Sizes padding,
                    Sizes dilation, int64_t groups) {
        return std::tuple(convolution_backward_weight(grad, input, weight_size, stride, padding, dilation,
                                                      groups),
                          sum(grad, grad.dim() == 4 ? Sizes{0, 2, 3} : Sizes{1, 2}, false, grad.dtype()));
      })
      .vjp(second_weight_gradients)
      .samples(
          {"grad[1, 2, 3, 3], input[1, 2, 4, 4], weight_size=[2, 2, 2, 2], stride=[1, 1], padding=[0, 0], dilation=[1, 1], groups=1"});
}
