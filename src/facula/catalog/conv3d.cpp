// Convolutions of volumes.
#include "facula/autograd/calls.h"
#include "facula/catalog/widened.h"
#include "facula/catalog/window_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::narrowed, catalog::wide;
using namespace facula::catalog::window_helpers;

namespace {
// [N, C, D, H, W] or [C, D, H, W] with a batch, and whether it had one.
std::pair<Tensor, bool> batched(const Tensor& x) {
  bool has = x.dim() == 5;
  return {has ? x : unsqueeze(x, 0), has};
}
// A convolution gives volumes in channels_last_3d if its input or its weight is in that format.
MemoryFormat format_of(const Tensor& input, const Tensor& weight) {
  bool last = is_in_channels_last_3d(input) || is_in_channels_last_3d(weight);
  return last && input.dim() == 5 ? MemoryFormat::channels_last_3d : MemoryFormat::contiguous;
}
// [N * D, C, H, W] as [N, C, D, H, W].
Tensor stacked(const Tensor& planes, SymInt n, SymInt depth, bool batch, MemoryFormat format) {
  Dims split{n, depth, planes.size(1), planes.size(2), planes.size(3)};
  Tensor y = contiguous(transpose(view(planes, split), 1, 2), format);
  return batch ? y : squeeze(y, {kZero});
}
void check_convolved(const Call& c, const Tensor& input, const Tensor& weight, bool transposed) {
  int64_t groups = c.integer("groups").guard_int();
  runtime_check(input.dim() == 4 || input.dim() == 5, c.name())
      << "expected 4D (unbatched) or 5D (batched) input, but got input of size " << to_string(input.sizes());
  runtime_check(weight.dim() == 5, c.name())
      << "weight must be 5D "
      << (transposed ? "[in_channels, out_channels / groups, kD, kH, kW]"
                     : "[out_channels, in_channels / groups, kD, kH, kW]")
      << ", got shape " << to_string(weight.sizes());
  runtime_check(groups > 0, c.name()) << "non-positive groups is not supported, got " << groups;
  SymInt channels = input.size(-4), expected = transposed ? weight.size(0) : weight.size(1) * SymInt(groups);
  runtime_check(channels == expected, c.name())
      << "given groups=" << groups << ", weight of size " << to_string(weight.sizes()) << ", expected input"
      << to_string(input.sizes()) << " to have " << expected << " channels, but got " << channels
      << " channels instead";
  runtime_check(weight.size(0) % SymInt(groups) == kZero, c.name())
      << "given groups=" << groups << ", expected weight to be divisible by " << groups
      << " at dimension 0, but got weight of size " << to_string(weight.sizes()) << " instead";
  for (const char* arg : {"stride", "dilation"})
    for (auto s : three(c, arg))
      runtime_check(s > kZero, c.name())
          << arg << " should be greater than zero, got " << to_string(c.ints(arg));
  for (auto s : three(c, "padding"))
    runtime_check(s >= kZero, c.name())
        << "negative padding is not supported, got " << to_string(c.ints("padding"));
}
// In the dtype in which planes are added up: that of sums for 16-bit numbers, whose gradients are sums too; double
// precision for complex ones, whose three real products (conv2d) cancel.
Tensor summed(const Tensor& x) {
  return x.dtype() == DType::Complex64 ? to_dtype(x, DType::Complex128) : wide(x);
}
// A convolution over [D, H, W] as one over [H, W], with the planes of a window along D as channels.
Tensor convolved(const Call& c, const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                 const Dims& padding) {
  Dims stride = three(c, "stride"), dilation = three(c, "dilation");
  auto [x, batch] = batched(input);
  Window w{weight.size(2), stride[0], padding[0], dilation[0]};
  for (int k = 0; k < 3; ++k) {
    SymInt padded = x.size(2 + k) + padding[size_t(k)] * SymInt(int64_t(2));
    runtime_check(weight.size(2 + k) > kZero &&
                      !(dilation[size_t(k)] * (weight.size(2 + k) - kOne) + kOne > padded),
                  c.name())
        << "kernel size must be positive and can't be greater than the padded input: input "
        << to_string(input.sizes()) << ", weight " << to_string(weight.sizes()) << ", padding "
        << to_string(SymSpan(padding));
  }
  SymInt n = x.size(0), depth = w.places(x.size(2)), taps = w.size;
  Tensor windows = _windows(summed(x), -3, taps, w.stride, w.padding, w.dilation);  // [N, C, kD, D', H, W]
  Tensor planes =
      reshape(permute(windows, {int64_t(0), int64_t(3), int64_t(1), int64_t(2), int64_t(4), int64_t(5)}),
              Dims{n * depth, x.size(1) * taps, x.size(3), x.size(4)});
  std::optional<Tensor> added;
  if (bias) added = summed(*bias);
  Tensor k =
      reshape(summed(weight), Dims{weight.size(0), weight.size(1) * taps, weight.size(3), weight.size(4)});
  Tensor y = conv2d(planes, k, added, last_two(stride), last_two(padding), last_two(dilation),
                    c.integer("groups").guard_int());
  return narrowed(stacked(y, n, depth, batch, format_of(input, weight)), input.dtype());
}
}  // namespace

FACULA_FAMILY(conv3d) {
  define(
      "conv3d(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] dilation=1, int groups=1) -> Tensor")
      .grad_name("Convolution")
      .doc(
          "Cross-correlation of input [N, C, D, H, W] with weight [out, C / groups, kD, kH, kW], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias) {
        check_convolved(c, input, weight, false);
        return convolved(c, input, weight, bias, three(c, "padding"));
      })
      .samples({"input[2, 2, 4, 5, 4], weight[3, 2, 2, 3, 2], bias[3]",
                "input[4, 5, 4, 6], weight[2, 2, 3, 2, 2], stride=[2, 1, 2], padding=[1, 0, 1], groups=2",
                "input[1, 2, 5, 3, 3], weight[2, 2, 2, 2, 2], dilation=[2, 1, 2]"});
  define(
      "conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, str padding='valid', int[3] dilation=1, int groups=1) -> Tensor")
      .grad_name("Convolution")
      .doc("conv3d with padding 'valid' (none) or 'same' (the result has the input's size; stride 1).")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias) {
        auto padding = c.str("padding");
        runtime_check(padding == "same" || padding == "valid", "conv3d")
            << "padding must be 'same', 'valid' or numbers, got '" << std::string(padding) << "'";
        runtime_check(weight.dim() == 5, "conv3d")
            << "weight must be 5D, got shape " << to_string(weight.sizes());
        Dims stride = three(c, "stride"), dilation = three(c, "dilation"), pad;
        if (padding == "same") {
          for (size_t k = 3; k-- > 0;) {
            runtime_check(stride[k] == kOne, "conv3d")
                << "padding='same' is not supported for strided convolutions";
            SymInt total = dilation[k] * (weight.size(int(k) + 2) - kOne);
            pad.push_back(total / SymInt(int64_t(2)));
            pad.push_back(total - total / SymInt(int64_t(2)));
          }
        }
        return conv3d(pad.empty() ? input : constant_pad_nd(input, pad, 0), weight,
                      bias ? MaybeTensor(*bias) : MaybeTensor(), stride, Sizes{0, 0, 0}, dilation,
                      c.integer("groups").guard_int());
      })
      .samples({"input[1, 2, 4, 3, 4], weight[2, 2, 3, 2, 3], padding='same'",
                "input[2, 4, 3, 4], weight[2, 2, 3, 2, 3], padding='valid'"});
  define(
      "conv_transpose3d(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] output_padding=0, int groups=1, int[3] dilation=1) -> Tensor")
      .grad_name("Convolution")
      .doc(
          "Transposed convolution, the gradient of conv3d for its input: input [N, C, D, H, W] with weight [C, out / groups, kD, kH, kW], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias) {
        check_convolved(c, input, weight, true);
        Dims stride = three(c, "stride"), padding = three(c, "padding"), dilation = three(c, "dilation"),
             extra = three(c, "output_padding");
        for (size_t k = 0; k < 3; ++k)
          runtime_check(extra[k] < stride[k] || extra[k] < dilation[k], c.name())
              << "output padding must be smaller than either stride or dilation, but got output_padding "
              << to_string(SymSpan(extra)) << ", stride " << to_string(SymSpan(stride)) << ", dilation "
              << to_string(SymSpan(dilation));
        auto [x, batch] = batched(input);
        SymInt n = x.size(0), depth = x.size(2), taps = weight.size(2),
               outputs = weight.size(1) * c.integer("groups");
        SymInt out = (depth - kOne) * stride[0] - padding[0] * SymInt(int64_t(2)) +
                     dilation[0] * (taps - kOne) + extra[0] + kOne;
        runtime_check(out > kZero, c.name())
            << "given input size " << to_string(input.sizes()) << ", the output size is too small";
        Tensor planes = reshape(transpose(summed(x), 1, 2), Dims{n * depth, x.size(1), x.size(3), x.size(4)});
        Tensor k = reshape(summed(weight),
                           Dims{weight.size(0), weight.size(1) * taps, weight.size(3), weight.size(4)});
        Tensor y = conv_transpose2d(planes, k, std::nullopt, last_two(stride), last_two(padding),
                                    last_two(extra), c.integer("groups").guard_int(), last_two(dilation));
        y = permute(view(y, Dims{n, depth, outputs, taps, y.size(2), y.size(3)}),
                    {int64_t(0), int64_t(2), int64_t(3), int64_t(1), int64_t(4), int64_t(5)});
        y = _overlap_add(y, 2, out, stride[0], padding[0], dilation[0]);
        if (bias) y = add(y, view(summed(*bias), Dims{outputs, kOne, kOne, kOne}));
        return contiguous(narrowed(batch ? y : squeeze(y, {kZero}), input.dtype()), format_of(input, weight));
      })
      .samples(
          {"input[1, 2, 3, 3, 2], weight[2, 3, 2, 3, 2], bias[3]",
           "input[2, 2, 3, 2], weight[2, 1, 3, 2, 2], stride=2, padding=[1, 0, 0], output_padding=1, groups=2",
           "input[1, 2, 2, 3, 2], weight[2, 2, 2, 2, 2], dilation=[2, 1, 2]"});
}
