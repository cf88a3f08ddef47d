// Convolutions (cross-correlations, as the field calls them): forward and the two gradients, each an
// operator.
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
Expr conv_element(const LoopCall& c, Index i) {
  Window w = window(c);
  auto input = c.sizes("input"), weight = c.sizes("weight");
  size_t r = i.size() - 3;
  Index batch(i.begin(), i.begin() + std::ptrdiff_t(r));
  Expr group = floordiv(i[r], n_of(weight[0] / SymInt(w.groups)));
  Expr y = reduce(c, monoid::sum, {weight[1], weight[2], weight[3]}, [&](Index k) {
    Tap t = read_at(w, i[r + 1], i[r + 2], k[1], k[2], input[r + 1], input[r + 2]);
    Expr x = c.load("input", pixel(batch, group * n_of(weight[1]) + k[0], t.y, t.x));
    return select(t.valid, x * c.load("weight", {i[r], k[0], k[1], k[2]}), zero_of(x));
  });
  return c.has("bias") ? y + c.load("bias", {i[r]}) : y;
}
// Gradients of a complex convolution, which is made of three real ones: a(re, re), b(im, im) and c(sum, sum) give
// a - b + i (c - a - b).
Grads complex_gradients(const Vjp& v) {
  auto& c = v.call();
  Tensor g = v.grad(), along = _real(g), across = _imag(g);
  Tensor of_a = sub(along, across), of_b = neg(add(along, across));
  auto of = [&](const char* other, auto&& gradient) {
    Tensor re = _real(v[other]), im = _imag(v[other]), both = gradient(across, add(re, im));
    return complex_of(add(gradient(of_a, re), both), add(gradient(of_b, im), both));
  };
  Grads out(3);
  if (v.needs("input"))
    out[0] = of("weight", [&](const Tensor& grad, const Tensor& w) {
      return input_gradient(grad, w, c.sizes("input"), c);
    });
  if (v.needs("weight"))
    out[1] = of("input", [&](const Tensor& grad, const Tensor& x) {
      return weight_gradient(grad, x, c.sizes("weight"), c);
    });
  if (v.needs("bias")) out[2] = sum(g, c.rank("input") == 4 ? Sizes{0, 2, 3} : Sizes{1, 2});
  return out;
}
Sample conv_sample(std::vector<int64_t> input, std::vector<int64_t> weight, bool bias,
                   const char* stride = "1", const char* padding = "0", const char* dilation = "1",
                   const char* groups = "1") {
  Sample s{{{"input", op::tensor(std::move(input))}, {"weight", op::tensor(weight)}}};
  if (bias) s.args.push_back({"bias", op::tensor({weight[0]})});
  for (auto [name, text] : {std::pair("stride", stride), std::pair("padding", padding),
                            std::pair("dilation", dilation), std::pair("groups", groups)})
    s.args.push_back({name, op::literal(text)});
  return s;
}
Results convolutions(const Batched& b) {
  auto& c = b.logical();
  if (!is_plain(b, "input")) return {};
  Steps s(c);
  Tensor bias = b["bias"], y;
  bool with_bias = bias.defined() && !b.is_batched("bias") && !b.is_batched("weight");
  if (!b.is_batched("weight"))
    y = parted(conv2d(folded(images(b, "input")), b["weight"], with_bias ? MaybeTensor(bias) : MaybeTensor(),
                      s.stride, s.padding, s.dilation, s.groups),
               b.size(), c.rank("input") == 3 ? SymInt(int64_t(1)) : c.size("input", 0));
  else y = _conv2d_batch(images(b, "input"), b["weight"], s.stride, s.padding, s.dilation, s.groups);
  if (bias.defined() && !with_bias) {
    SymInt one = int64_t(1);
    y = add(y, b.is_batched("bias") ? view(bias, Sizes{b.size(), one, bias.size(1), one, one})
                                    : view(bias, Sizes{bias.size(0), one, one}));
  }
  return Results(as_called(b, "input", y));
}
}  // namespace

FACULA_FAMILY(conv) {
  define(
      "conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] dilation=1, int groups=1) -> Tensor")
      .doc("Cross-correlation of input [N, C, H, W] with weight [out, C / groups, kH, kW], plus bias [out].")
      .grad_name([](const Call& c) {
        return c.rank("input") == 4 ? grad_name("Convolution") : grad_name("Squeeze", 1);
      })
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        check_dtypes("conv2d", c.tensor("input"), "Input", c.tensor("weight"), "weight");
        Dims sizes = conv_sizes("conv2d", c.sizes("input"), c.sizes("weight"), window(c));
        if (c.has("bias")) {
          check_dtypes("conv2d", c.tensor("input"), "Input", c.tensor("bias"), "bias");
          runtime_check(c.rank("bias") == 1 && c.size("bias", 0) == c.size("weight", 0), "conv2d")
              << "given weight of size " << to_string(c.sizes("weight"))
              << ", expected bias to be 1-dimensional with " << c.size("weight", 0)
              << " elements, but got bias of size " << to_string(c.sizes("bias")) << " instead";
        }
        return sizes;
      })
      .format_of({"input", "weight"})
      .channels_last(ChannelsLast::chooses)
      .library("conv2d")
      .batched(convolutions)
      .reference(conv_element)
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Grads out(3);
        if (c.size("input", -3) == SymInt(int64_t(0))) {
          for (size_t k = 0; const char* name : {"input", "weight", "bias"}) {
            if (v.needs(name)) out[k] = zeros_like(v[name]);
            ++k;
          }
          return out;
        }
        if (is_complex(c.dtype("input"))) return complex_gradients(v);
        if (v.needs("input")) out[0] = input_gradient(v.grad(), v["weight"], c.sizes("input"), c);
        if (v.needs("bias") && v.needs("weight")) {
          auto [w, b] = convolution_backward_weight_bias(v.grad(), conjugate(v["input"]), c.sizes("weight"),
                                                         c.ints("stride"), c.ints("padding"),
                                                         c.ints("dilation"), c.integer("groups").guard_int());
          out[1] = w;
          out[2] = b;
        } else if (v.needs("weight")) {
          out[1] = weight_gradient(v.grad(), v["input"], c.sizes("weight"), c);
        } else if (v.needs("bias")) {
          out[2] = sum(v.grad(), c.rank("input") == 4 ? Sizes{0, 2, 3} : Sizes{1, 2});
        }
        return out;
      })
      .samples(op::samples({conv_sample({1, 2, 4, 4}, {2, 2, 3, 3}, true, "1", "1"),
                            conv_sample({2, 4, 4}, {4, 1, 2, 3}, false, "2", "[0, 1]", "1", "2"),
                            conv_sample({2, 3, 7, 6}, {4, 3, 3, 3}, true, "1", "1"),
                            conv_sample({3, 7, 6}, {4, 3, 3, 2}, false, "[2, 1]"),
                            conv_sample({2, 4, 9, 9}, {6, 2, 3, 3}, true, "2", "[1, 2]", "2", "2")}));
}
