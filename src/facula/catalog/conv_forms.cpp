// Forms of convolutions: by name of the padding, of one dimension, transposed, general.
#include "facula/catalog/conv_helpers.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::is_rounded, catalog::narrowed, catalog::wide;
namespace d = facula::dtypes;
using namespace facula::catalog::conv_helpers;

namespace {
// One dimension is a row of images of height 1.
void check_line(const Tensor& input, const Tensor& weight) {
  runtime_check(input.dim() == 2 || input.dim() == 3, "conv1d")
      << "expected 2D (unbatched) or 3D (batched) input [N, C, L], but got input of size "
      << to_string(input.sizes());
  runtime_check(weight.dim() == 3, "conv1d")
      << "weight must be 3D [out_channels, in_channels / groups, k], got shape " << to_string(weight.sizes());
}
Dims in_row(SymSpan s, int64_t neutral) {
  runtime_check(s.size() <= 1, "conv1d")
      << "expected stride, padding and dilation to be single numbers, but got " << to_string(s);
  return Dims{SymInt(neutral), s.empty() ? SymInt(neutral) : s[0]};
}
// Refuses operands of a transposed convolution over `rank` dimensions that do not fit; returns the number of output channels.
SymInt checked_outputs(const char* name, const Tensor& input, const Tensor& weight,
                       const std::optional<Tensor>& bias, int rank, int64_t groups) {
  runtime_check(input.dim() == rank + 1 || input.dim() == rank + 2, name)
      << "expected " << rank + 1 << "D (unbatched) or " << rank + 2
      << "D (batched) input, but got input of size " << to_string(input.sizes());
  runtime_check(weight.dim() == rank + 2, name)
      << "weight must be " << rank + 2 << "D [in_channels, out_channels / groups, ...], got shape "
      << to_string(weight.sizes());
  runtime_check(groups > 0, name) << "non-positive groups is not supported, got " << groups;
  SymInt channels = input.size(-rank - 1), outputs = weight.size(1) * SymInt(groups);
  runtime_check(channels == weight.size(0), name)
      << "given transposed=1, weight of size " << to_string(weight.sizes()) << ", expected input "
      << to_string(input.sizes()) << " to have " << weight.size(0) << " channels, but got " << channels
      << " channels instead";
  runtime_check(!(channels < SymInt(groups)), name)
      << "given groups=" << groups << ", expected weight to be at least " << groups
      << " at dimension 0, but got weight of size " << to_string(weight.sizes()) << " instead";
  runtime_check(channels % SymInt(groups) == SymInt(int64_t(0)), name)
      << "given groups=" << groups << ", expected weight to be divisible by " << groups
      << " at dimension 0, but got weight of size " << to_string(weight.sizes()) << " instead";
  runtime_check(!bias || (bias->dim() == 1 && bias->size(0) == outputs), name)
      << "given transposed=1, weight of size " << to_string(weight.sizes())
      << ", expected bias to be 1-dimensional with " << outputs << " elements, but got bias of size "
      << (bias ? to_string(bias->sizes()) : "") << " instead";
  runtime_check(outputs > SymInt(int64_t(0)), name)
      << "expected a weight that makes output channels, but got weight of size " << to_string(weight.sizes());
  return outputs;
}
// The numbers of a transposed convolution of images. One dimension is a row of images of height 1.
struct Transposed {
  Dims stride, padding, extra, dilation;
  int64_t groups;
  Dims size;  // of the result

  Transposed(const Call& c, int rank)
      : stride(c.ints("stride", rank)),
        padding(c.ints("padding", rank)),
        extra(c.ints("output_padding", rank)),
        dilation(c.ints("dilation", rank)),
        groups(c.integer("groups").guard_int()) {
    if (rank == 2) return;
    for (auto* d : {&stride, &dilation}) d->insert(0, SymInt(int64_t(1)));
    for (auto* d : {&padding, &extra}) d->insert(0, SymInt(int64_t(0)));
  }
  void set_size(const char* name, const Tensor& x, const Tensor& w, SymInt outputs, SymSpan given, int rank) {
    size = Dims(x.sizes());
    size_t r = size.size() - 2;
    size[r - 1] = outputs;
    for (size_t k = 0; k < 2; ++k) {
      bool in_use = rank == 2 || k == 1;
      runtime_check(!in_use || extra[k] < stride[k] || extra[k] < dilation[k], name)
          << "output padding must be smaller than either stride or dilation, but got output_padding "
          << to_string(SymSpan(extra)) << ", stride " << to_string(SymSpan(stride)) << ", dilation "
          << to_string(SymSpan(dilation));
      SymInt one = int64_t(1);
      size[r + k] = (size[r + k] - one) * stride[k] - SymInt(int64_t(2)) * padding[k] +
                    dilation[k] * (w.size(int(k) + 2) - one) + extra[k] + one;
      runtime_check(size[r + k] > SymInt(int64_t(0)), name)
          << "given input size " << to_string(given)
          << ", the output size is too small: " << to_string(SymSpan(size));
    }
  }
  // The gradients of what is cut off are zeros, and take part: PyTorch's NaN and infinities meet them where windows
  // have gaps (not those of 16-bit floats).
  bool cuts(bool rounded) const {
    bool cut = false;
    for (size_t k = 0; k < 2; ++k)
      cut = cut || (!rounded && dilation[k] > SymInt(int64_t(1)) && padding[k] > SymInt(int64_t(0)));
    return cut;
  }
  Tensor of(const Tensor& x, const Tensor& w, bool cut) const {
    if (!cut && extra[0] < stride[0] && extra[1] < stride[1])
      return convolution_backward_input(x, w, size, stride, padding, dilation, groups);
    // All that is written, cut and padded; beyond a stride no convolution of that size gives this input.
    Dims whole(size), crop;
    size_t r = size.size() - 2;
    for (size_t k = 0; k < 2; ++k) whole[r + k] = size[r + k] + SymInt(int64_t(2)) * padding[k] - extra[k];
    Tensor y = convolution_backward_input(x, w, whole, stride, Sizes{0, 0}, dilation, groups);
    for (size_t k = 2; k-- > 0;) {
      crop.push_back(-padding[k]);
      crop.push_back(extra[k] - padding[k]);
    }
    return constant_pad_nd(y, crop, 0);
  }
};
// A transposed convolution over `rank` dimensions.
Tensor transposed(const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias,
                  int rank) {
  SymInt outputs = checked_outputs(c.name(), input, weight, bias, rank, c.integer("groups").guard_int());
  Transposed t(c, rank);
  Tensor x = rank == 1 ? unsqueeze(input, -2) : input, w = rank == 1 ? unsqueeze(weight, -2) : weight;
  t.set_size(c.name(), x, w, outputs, input.sizes(), rank);
  bool cut = t.cuts(is_rounded(x));
  // A sum of a few float16 products may have no more digits than its bias leaves: both are rounded at once.
  DType given = x.dtype();
  if (bias && given == DType::Float16 && w.dtype() == given) x = wide(x), w = wide(w), bias = wide(*bias);
  auto with_bias = [&](const Tensor& y, const Tensor& b) {
    return bias ? add(y, view(b, Dims{outputs, SymInt(int64_t(1)), SymInt(int64_t(1))})) : y;
  };
  Tensor y;
  if (!is_complex(x.dtype()) || !is_complex(w.dtype()) || (bias && !is_complex(bias->dtype()))) {
    y = with_bias(t.of(x, w, cut), bias ? *bias : Tensor());
  } else {  // by three real ones, as conv2d of complex numbers
    auto parts = [](const Tensor& t) {
      Tensor pairs = view_as_real(t);
      return std::pair(select(pairs, -1, int64_t(0)), select(pairs, -1, int64_t(1)));
    };
    auto [xr, xi] = parts(x);
    auto [wr, wi] = parts(w);
    auto [br, bi] = bias ? parts(*bias) : std::pair<Tensor, Tensor>();
    Tensor a = with_bias(t.of(xr, wr, cut), br), b = t.of(xi, wi, cut);
    Tensor turned = with_bias(t.of(add(xr, xi), add(wr, wi), cut), bias ? add(br, bi) : br);
    turned = sub(sub(turned, a), b);
    Tensor none = mul(turned, 0);
    y = complex_of(add(sub(a, b), none), add(turned, none));
  }
  y = narrowed(y, given);
  return rank == 1 ? squeeze(y, -2) : y;
}
}  // namespace

FACULA_FAMILY(conv_forms) {
  define(
      "conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, str padding='valid', int[2] dilation=1, int groups=1) -> Tensor")
      .doc("conv2d with padding 'valid' (none) or 'same' (the result has the input's size; stride 1).")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias,
                    SymSpan stride, std::string_view padding, SymSpan dilation, int64_t groups) {
        runtime_check(padding == "same" || padding == "valid", "conv2d")
            << "padding must be 'same', 'valid' or numbers, got '" << std::string(padding) << "'";
        MaybeTensor b = bias ? MaybeTensor(*bias) : MaybeTensor();
        if (padding == "valid") return conv2d(input, weight, b, stride, Sizes{0, 0}, dilation, groups);
        for (auto s : c.ints("stride", 2))
          runtime_check(s == SymInt(int64_t(1)), "conv2d")
              << "padding='same' is not supported for strided convolutions";
        runtime_check(weight.dim() == 4, "conv2d")
            << "weight must be 4D [out_channels, in_channels / groups, kH, kW], got shape "
            << to_string(weight.sizes());
        Dims gap = c.ints("dilation", 2), pad;
        bool even = true;
        SymInt before[2], total[2];
        for (int k = 0; k < 2; ++k) {
          total[k] = gap[size_t(k)] * (weight.size(2 + k) - SymInt(int64_t(1)));
          before[k] = total[k] / SymInt(int64_t(2));
          even = even && before[k] * SymInt(int64_t(2)) == total[k];
        }
        if (even) return conv2d(input, weight, b, stride, {before[0], before[1]}, dilation, groups);
        for (int k = 1; k >= 0; --k) {
          pad.push_back(before[k]);
          pad.push_back(total[k] - before[k]);
        }
        return conv2d(constant_pad_nd(input, pad, 0), weight, b, stride, Sizes{0, 0}, dilation, groups);
      })
      .samples({"input[2, 2, 5, 4], weight[3, 2, 3, 3], bias[3], padding='same'",
                "input[2, 2, 5, 4], weight[3, 2, 3, 2], padding='valid'"});
  define(
      "conv1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] dilation=1, int groups=1) -> Tensor")
      .grad_name("Convolution")
      .doc("Cross-correlation of input [N, C, L] with weight [out, C / groups, k], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Tensor& input, const Tensor& weight, std::optional<Tensor> bias, SymSpan stride,
                    SymSpan padding, SymSpan dilation, int64_t groups) {
        check_line(input, weight);
        Tensor y =
            conv2d(unsqueeze(input, -2), unsqueeze(weight, -2), bias ? MaybeTensor(*bias) : MaybeTensor(),
                   in_row(stride, 1), in_row(padding, 0), in_row(dilation, 1), groups);
        return squeeze(y, -2);
      })
      .samples({"input[2, 3, 9], weight[4, 3, 3], bias[4], stride=[2], padding=[1]",
                "input[3, 9], weight[4, 3, 3]"});
  define("conv_tbc(Tensor self, Tensor weight, Tensor bias, int pad=0) -> Tensor")
      .grad_name("ConvTbc")
      .doc(
          "Cross-correlation of self [time, batch, channels] with weight [k, channels, out], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Tensor& self, const Tensor& weight, const Tensor& bias, int64_t pad) {
        runtime_check(self.dim() == 3 && weight.dim() == 3 && bias.dim() == 1, "conv_tbc")
            << "expected self [time, batch, channels], weight [k, channels, out] and bias [out], got "
            << to_string(self.sizes()) << ", " << to_string(weight.sizes()) << " and "
            << to_string(bias.sizes());
        runtime_check(weight.size(1) == self.size(2) && bias.size(0) == weight.size(2), "conv_tbc")
            << "expected weight [k, " << self.size(2) << ", out] and bias [out], got "
            << to_string(weight.sizes()) << " and " << to_string(bias.sizes());
        runtime_check(self.dtype() == weight.dtype() && self.dtype() == bias.dtype(), "conv_tbc")
            << "Input type (" << self.dtype() << "), weight type (" << weight.dtype() << ") and bias type ("
            << bias.dtype() << ") should be the same";
        runtime_check(std::abs(pad) < int64_t(1) << 31, "conv_tbc")
            << "padding must be below 2^31, got " << pad;
        // A product for each place of the kernel, added in PyTorch's order.
        SymInt zero = int64_t(0), one = int64_t(1), in = self.size(0), kernel = weight.size(0),
               out = in - kernel + one + SymInt(2 * pad), channels = weight.size(2);
        runtime_check(!(out < zero), "conv_tbc")
            << "the kernel of " << kernel << " places is longer than the input of " << in
            << " with a padding of " << pad;
        DType t = compute_type(self.dtype());
        Tensor x = to_dtype(self, t), w = to_dtype(weight, t);
        Tensor y =
            clone(expand(to_dtype(bias, t), Dims{out, self.size(1), channels}), MemoryFormat::contiguous);
        for (int64_t k = 0; k < kernel.guard_int(); ++k) {
          SymInt from = std::max<int64_t>(k - pad, 0), to = std::max<int64_t>(pad - k, 0);
          SymInt count = min(in + SymInt(pad - k), out) - to;
          if (!(count > zero)) continue;
          Tensor part = reshape(narrow(x, 0, from, count), Dims{count * self.size(1), self.size(2)});
          Tensor rows = view(narrow(y, 0, to, count), Dims{count * self.size(1), channels});
          addmm_(rows, part, select(w, 0, SymInt(k)));
        }
        return to_dtype(y, self.dtype());
      })
      .samples({"self[6, 2, 3], weight[3, 3, 4], bias[4], pad=1"});
  define(
      "conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, str padding='valid', int[1] dilation=1, int groups=1) -> Tensor")
      .grad_name("Convolution")
      .doc("conv1d with padding 'valid' (none) or 'same' (the result has the input's size; stride 1).")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Tensor& input, const Tensor& weight, std::optional<Tensor> bias, SymSpan stride,
                    std::string_view padding, SymSpan dilation, int64_t groups) {
        check_line(input, weight);
        Tensor y =
            conv2d(unsqueeze(input, -2), unsqueeze(weight, -2), bias ? MaybeTensor(*bias) : MaybeTensor(),
                   in_row(stride, 1), padding, in_row(dilation, 1), groups);
        return squeeze(y, -2);
      })
      .samples({"input[2, 3, 9], weight[4, 3, 3], bias[4], padding='same'",
                "input[3, 9], weight[4, 3, 2], padding='valid'"});
  define(
      "conv_transpose2d(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] output_padding=0, int groups=1, int[2] dilation=1) -> Tensor")
      .grad_name("Convolution")
      .doc(
          "Transposed convolution, the gradient of conv2d for its input: input [N, C, H, W] with weight [C, out / groups, kH, kW], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias) {
        return transposed(c, input, weight, bias, 2);
      })
      .samples({"input[1, 2, 4, 4], weight[2, 3, 3, 3], bias[3]",
                "input[2, 3, 5], weight[2, 1, 2, 3], stride=2, padding=[0, 1], output_padding=1, groups=2",
                "input[1, 2, 3, 4], weight[2, 2, 2, 2], dilation=[2, 1]"});
  define(
      "conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] output_padding=0, int groups=1, int[1] dilation=1) -> Tensor")
      .grad_name("Convolution")
      .doc(
          "Transposed convolution, the gradient of conv1d for its input: input [N, C, L] with weight [C, out / groups, k], plus bias [out].")
      .autocast(Autocast::lower)
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& input, const Tensor& weight, std::optional<Tensor> bias) {
        return transposed(c, input, weight, bias, 1);
      })
      .samples({"input[2, 2, 5], weight[2, 3, 3], bias[3], stride=2",
                "input[2, 4], weight[2, 2, 3], padding=1, dilation=2"});
  define(
      "convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, int groups) -> Tensor")
      .grad_name("Convolution")
      .doc("The convolution, or transposed one, of 1, 2 or 3 dimensions that the rank of weight says.")
      .autocast(Autocast::lower)
      .procedure([](const Tensor& input, const Tensor& weight, std::optional<Tensor> bias, SymSpan stride,
                    SymSpan padding, SymSpan dilation, bool transposed, SymSpan output_padding,
                    int64_t groups) {
        int rank = weight.dim() - 2;
        runtime_check(rank >= 1 && rank <= 3, "convolution")
            << "weight must have 3 to 5 dimensions, got shape " << to_string(weight.sizes());
        MaybeTensor b = bias ? MaybeTensor(*bias) : MaybeTensor();
        if (transposed)
          return rank == 1
                     ? conv_transpose1d(input, weight, b, stride, padding, output_padding, groups, dilation)
                 : rank == 2
                     ? conv_transpose2d(input, weight, b, stride, padding, output_padding, groups, dilation)
                     : conv_transpose3d(input, weight, b, stride, padding, output_padding, groups, dilation);
        return rank == 1   ? conv1d(input, weight, b, stride, padding, dilation, groups)
               : rank == 2 ? conv2d(input, weight, b, stride, padding, dilation, groups)
                           : conv3d(input, weight, b, stride, padding, dilation, groups);
      })
      .samples(
          {"input[1, 2, 4, 4], weight[2, 2, 3, 3], bias[2], stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=False, output_padding=[0, 0], groups=1",
           "input[2, 2, 5], weight[2, 3, 3], bias=None, stride=[2], padding=[0], dilation=[1], transposed=True, output_padding=[1], groups=1"});
}
