// Convolutions of a batch of images with weights of their own, as vmap needs them.
#include "facula/catalog/conv_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::conv_helpers;

namespace {
// ---- batches of calls (vmap): [batch, n, ...], n is 1 for calls without a batch of their own

// Whether all slices along the first dimension share memory, as expand makes them.
bool is_repeated(const Tensor& t) { return SymInt::surely_equal(t.stride(0), int64_t(0)); }
Tensor first_of(const Tensor& t) { return select(t, 0, SymInt(int64_t(0))); }
// [batch, n, channels, ...] as [n, batch * channels, ...], and back.
Tensor in_channels(const Tensor& t) {
  return reshape(transpose(t, 0, 1), Sizes{t.size(1), t.size(0) * t.size(2), t.size(3), t.size(4)});
}
Tensor of_channels(const Tensor& t, SymInt batch) {
  return transpose(reshape(t, Sizes{t.size(0), batch, t.size(1) / batch, t.size(2), t.size(3)}), 0, 1);
}
}  // namespace

FACULA_FAMILY(conv_batch) {
  // Weights that are the same in all calls, as those of a model whose gradients are asked for each example: one
  // convolution forward, and apart only in the gradient of the weights.
  define(
      "_conv2d_batch(Tensor input, Tensor weight, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc("conv2d of each pair of input [batch, N, C, H, W] and weight [batch, out, C / groups, kH, kW].")
      .bind(hidden)
      .dtypes(d::numeric)
      .autocast(Autocast::lower)
      .composite([](const Tensor& input, const Tensor& weight, SymSpan stride, SymSpan padding,
                    SymSpan dilation, int64_t groups) {
        SymInt batch = input.size(0), n = input.size(1);
        if (is_repeated(weight))
          return parted(conv2d(folded(input), first_of(weight), MaybeTensor(), stride, padding, dilation,
                               groups),
                        batch, n);
        Tensor x = is_repeated(input) && groups == 1 ? first_of(input) : in_channels(input);
        int64_t together = is_repeated(input) && groups == 1 ? 1 : groups * batch.guard_int();
        return of_channels(conv2d(x, folded(weight), MaybeTensor(), stride, padding, dilation, together),
                           batch);
      })
      // Gradients of weights by one product of matrices for each example.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Steps s(c);
        Dims w(c.sizes("weight").subspan(1)), x(c.sizes("input").subspan(1));
        return grads(v.needs("input") ? _conv2d_batch_input(v.grad(), v["weight"], x, s.stride, s.padding,
                                                            s.dilation, s.groups)
                                      : Tensor(),
                     v.needs("weight") ? _conv2d_batch_weight(v.grad(), v["input"], w, s.stride, s.padding,
                                                              s.dilation, s.groups)
                                       : Tensor());
      })
      .samples(
          {"input[3, 2, 4, 5, 5], weight[3, 6, 2, 3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=2"});
  define(
      "_conv2d_batch_input(Tensor grad, Tensor weight, SymInt[] input_size, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc("The gradient of _conv2d_batch for its input; input_size is that of one.")
      .bind(hidden)
      .dtypes(d::numeric)
      .composite([](const Tensor& grad, const Tensor& weight, SymSpan input_size, SymSpan stride,
                    SymSpan padding, SymSpan dilation, int64_t groups) {
        SymInt batch = grad.size(0);
        Dims sizes(input_size);
        if (is_repeated(weight)) {
          sizes[0] *= batch;
          return parted(convolution_backward_input(folded(grad), first_of(weight), sizes, stride, padding,
                                                   dilation, groups),
                        batch, input_size[0]);
        }
        sizes[1] *= batch;
        return of_channels(convolution_backward_input(in_channels(grad), folded(weight), sizes, stride,
                                                      padding, dilation, groups * batch.guard_int()),
                           batch);
      })
      .samples(
          {"grad[3, 2, 6, 5, 5], weight[3, 6, 2, 3, 3], input_size=[2, 4, 5, 5], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=2"});
  define(
      "_conv2d_batch_weight(Tensor grad, Tensor input, SymInt[] weight_size, int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor")
      .doc(
          "The gradients of _conv2d_batch for its weights, each a product of matrices: of grad and of the windows of input.")
      .bind(hidden)
      .dtypes(d::numeric)
      .composite([](const Tensor& grad, const Tensor& input, SymSpan weight_size, SymSpan stride,
                    SymSpan padding, SymSpan dilation, int64_t groups) {
        SymInt batch = grad.size(0), n = grad.size(1), places = grad.size(3) * grad.size(4);
        Dims sizes{batch};
        for (SymInt k : weight_size) sizes.push_back(k);
        if (groups == 1) {
          Tensor windows =
              im2col(folded(input), Sizes{weight_size[2], weight_size[3]}, dilation, padding, stride);
          SymInt taps = windows.size(1), used = windows.size(2);
          Tensor g = reshape(transpose(grad, 1, 2), Sizes{batch, grad.size(2), n * places});
          windows = reshape(transpose(reshape(windows, Sizes{batch, n, taps, used}), 1, 2),
                            Sizes{batch, taps, n * used});
          return reshape(bmm(g, transpose(windows, 1, 2)), sizes);
        }
        Dims all(weight_size);
        all[0] *= batch;
        return reshape(convolution_backward_weight(in_channels(grad), in_channels(input), all, stride,
                                                   padding, dilation, groups * batch.guard_int()),
                       sizes);
      })
      .samples(
          {"grad[3, 2, 6, 5, 5], input[3, 2, 4, 5, 5], weight_size=[6, 2, 3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=2",
           "grad[3, 2, 6, 5, 5], input[3, 2, 4, 5, 5], weight_size=[6, 4, 3, 3], stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1"});
}
