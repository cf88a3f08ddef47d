// Windows of a dimension and their sums, and what follows from them: unfold and fold, and convolutions and pools
// over three dimensions as those over two of what one dimension's windows hold.
#include "facula/autograd/calls.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::narrowed, catalog::wide;
namespace d = facula::dtypes;

namespace {

const SymInt kOne = int64_t(1), kZero = int64_t(0);

// One dimension's kernel.
struct Window {
  SymInt size, stride, padding, dilation;
  SymInt places(SymInt n, bool ceil = false) const {
    SymInt span = n + padding * SymInt(int64_t(2)) - dilation * (size - kOne) - kOne;
    SymInt out = (ceil ? span + stride - kOne : span) / stride + kOne;
    if (ceil && (out - kOne) * stride >= n + padding) out -= kOne;
    return out;
  }
};
Window window(const Call& c) {
  return {c.integer("size"), c.integer("stride"), c.integer("padding"), c.integer("dilation")};
}

Expr n_of(SymInt n) { return loop::size(n); }
Expr inside(Expr at, Expr n) { return (at >= Scalar(int64_t(0))) & (at < n); }
Expr clipped(Expr at, Expr n) { return max(min(at, n - Scalar(int64_t(1))), Scalar(int64_t(0))); }

// "kernel_size=(2, 3)"
std::string shown(const char* name, SymSpan s) {
  std::string text = to_string(s);
  return std::string(name) + "=(" + text.substr(1, text.size() - 2) + ")";
}

// The windows of the two dimensions of a call of unfold or fold.
std::array<Window, 2> patches(const Call& c) {
  Dims kernel = c.ints("kernel_size", 2), stride = c.ints("stride", 2), padding = c.ints("padding", 2),
       dilation = c.ints("dilation", 2);
  std::array<Window, 2> w;
  for (size_t k = 0; k < 2; ++k) {
    w[k] = {kernel[k], stride[k], padding[k], dilation[k]};
    runtime_check(kernel[k] > kZero, c.name())
        << "kernel size should be greater than zero, but got " << shown("kernel_size", kernel);
    runtime_check(stride[k] > kZero, c.name())
        << "stride should be greater than zero, but got " << shown("stride", stride);
    runtime_check(dilation[k] > kZero, c.name())
        << "dilation should be greater than zero, but got " << shown("dilation", dilation);
    runtime_check(padding[k] >= kZero, c.name())
        << "padding should be non-negative, but got " << shown("padding", padding);
  }
  return w;
}
// The number of windows in each of two dimensions.
Dims windows_of(const Call& c, const std::array<Window, 2>& w, SymSpan sizes) {
  Dims out{w[0].places(sizes[0]), w[1].places(sizes[1])};
  runtime_check(out[0] > kZero && out[1] > kZero, c.name())
      << "given spatial size " << to_string(sizes) << ", "
      << shown("kernel_size", Dims(c.ints("kernel_size", 2))) << ", "
      << shown("dilation", Dims(c.ints("dilation", 2))) << ", "
      << shown("padding", Dims(c.ints("padding", 2))) << ", " << shown("stride", Dims(c.ints("stride", 2)))
      << ", calculated shape of the array of sliding blocks as " << to_string(SymSpan(out))
      << ", but its components must be at least one";
  return out;
}
// RuntimeError unless `sizes` have `rank` dimensions, or one more for a batch, and only the batch is empty.
void check_images(const Call& c, SymSpan sizes, size_t rank, const char* layout) {
  bool fits = sizes.size() == rank || sizes.size() == rank + 1;
  for (size_t k = sizes.size() == rank + 1; fits && k < sizes.size(); ++k) fits = sizes[k] != kZero;
  runtime_check(fits, c.name()) << "expected " << rank << "D (unbatched) or " << rank + 1
                                << "D (batched) input " << layout << ", in which only N may be 0, got shape "
                                << to_string(sizes);
}

Dims three(const Call& c, const char* arg) { return c.ints(arg, 3); }
Dims last_two(const Dims& x) { return {x[1], x[2]}; }

// [N, C, D, H, W] or [C, D, H, W] with a batch, and whether it had one.
std::pair<Tensor, bool> batched(const Tensor& x) {
  bool has = x.dim() == 5;
  return {has ? x : unsqueeze(x, 0), has};
}
// [N * D, C, H, W] as [N, C, D, H, W].
Tensor stacked(const Tensor& planes, SymInt n, SymInt depth, bool batch) {
  Dims split{n, depth, planes.size(1), planes.size(2), planes.size(3)};
  Tensor y = contiguous(transpose(view(planes, split), 1, 2));
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
  return narrowed(stacked(y, n, depth, batch), input.dtype());
}

// Stride as given, or the kernel's size.
Dims stride_of(const Call& c) {
  return c.has("stride") && !c.ints("stride").empty() ? three(c, "stride") : three(c, "kernel_size");
}
void check_pool(const Call& c, const Tensor& self, const Dims& stride, const Dims& dilation) {
  check_images(c, self.sizes(), 4, "[N, C, D, H, W]");
  Dims kernel = three(c, "kernel_size"), padding = three(c, "padding"), out;
  for (size_t k = 0; k < 3; ++k) {
    runtime_check(kernel[k] > kZero && stride[k] > kZero && dilation[k] > kZero, c.name())
        << "kernel size, stride and dilation must be greater than zero";
    runtime_check(padding[k] >= kZero && !(padding[k] > kernel[k] / SymInt(int64_t(2))), c.name())
        << "pad should be at most half of kernel size, but got pad=" << padding[k]
        << " and kernel_size=" << kernel[k];
    out.push_back(Window{kernel[k], stride[k], padding[k], dilation[k]}.places(self.size(int(k) - 3),
                                                                               c.flag("ceil_mode")));
    runtime_check(out[k] > kZero, c.name()) << "given input size " << to_string(self.sizes())
                                            << ", the output size is too small: " << to_string(SymSpan(out));
  }
}
// [N?, C, D, H, W] as [N? * C, D, H, W], which 2-d pools take for channels and for a column of rows.
Tensor volumes(const Tensor& x) { return x.dim() == 4 ? x : flatten(x, 0, 1); }
Tensor rows(const Tensor& x) { return flatten(x, -2, -1); }  // [.., D, H * W]
Tensor like_input(const Tensor& y, const Tensor& self, const Dims& plane) {
  Dims sizes(self.sizes().first(size_t(self.dim()) - 3));
  sizes.push_back(y.size(-2));
  for (auto s : plane) sizes.push_back(s);
  return reshape(y, sizes);
}
// The maxima of windows along D from the maxima of each plane's windows, and their positions in the volume.
std::tuple<Tensor, Tensor> deepest(const Tensor& self, const Tensor& best, const Tensor& at,
                                   const std::function<std::tuple<Tensor, Tensor>(const Tensor&)>& along) {
  Dims plane(best.sizes().last(2));
  SymInt width = product(SymSpan(plane)), area = self.size(-1) * self.size(-2);
  auto [v, p] = along(unsqueeze(rows(best), 1));  // a batch of one channel, as only a batch may be empty
  Tensor value = squeeze(v, {kOne}), place = squeeze(p, {kOne});  // depth * width + window
  Tensor depth = autograd::invoke("floor_divide", {place, width});
  Tensor in_plane = gather(flatten(at, -3), -1, flatten(place, -2));
  Tensor index = add(autograd::invoke("mul", {depth, area}), reshape(in_plane, place.sizes()));
  return {like_input(value, self, plane), like_input(index, self, plane)};
}
std::tuple<Tensor, Tensor> max_pooled(const Call& c, const Tensor& self) {
  Dims kernel = three(c, "kernel_size"), stride = stride_of(c), padding = three(c, "padding"),
       dilation = three(c, "dilation");
  check_pool(c, self, stride, dilation);
  bool ceil = c.flag("ceil_mode");
  auto [best, at] = max_pool2d_with_indices(volumes(self), last_two(kernel), last_two(stride),
                                            last_two(padding), last_two(dilation), ceil);
  return deepest(self, best, at, [&](const Tensor& x) {
    return max_pool2d_with_indices(x, Dims{kernel[0], kOne}, Dims{stride[0], kOne}, Dims{padding[0], kZero},
                                   Dims{dilation[0], kOne}, ceil);
  });
}
Dims adaptive_target(const Call& c, const Tensor& self) {
  check_images(c, self.sizes(), 4, "[N, C, D, H, W]");
  Dims to = three(c, "output_size");
  for (auto n : to)
    runtime_check(sym::may_be_at_most(kZero, n), c.name())
        << "elements of output_size must be greater than or equal to 0 but received "
        << to_string(SymSpan(to));
  return to;
}

}  // namespace

FACULA_FAMILY(window) {
  define(
      "_windows(Tensor self, int dim, SymInt size, SymInt stride, SymInt padding, SymInt dilation) -> Tensor")
      .doc(
          "Windows along `dim`, which becomes the two dimensions [element of the window, window]; 0 outside.")
      .bind(hidden)
      .shape([](const Call& c) {
        int k = c.dim("dim");
        Window w = window(c);
        return inserted(with(c.sizes("self"), k, w.places(c.sizes("self")[size_t(k)])), k, w.size);
      })
      .loop([](const LoopCall& c, Index i) {
        int k = c.dim("dim");
        Window w = window(c);
        Expr n = n_of(c.sizes("self")[size_t(k)]);
        Expr at = i[size_t(k) + 1] * n_of(w.stride) + i[size_t(k)] * n_of(w.dilation) - n_of(w.padding);
        Index j = without(i, k);
        if (w.padding == kZero) return c.load("self", with(j, k, at));
        Expr x = c.load("self", with(j, k, clipped(at, n)));
        return select(inside(at, n), x, constant(Scalar(int64_t(0)), x.dtype()));
      })
      // A gather; derived, a scatter: two axes of the result share a dimension.
      .transposed_by("_overlap_add")
      .samples({"self[7], dim=0, size=3, stride=2, padding=1, dilation=1",
                "self[2, 7, 3], dim=1, size=2, stride=1, padding=0, dilation=3",
                "self[2, 5], dim=-1, size=3, stride=3, padding=2, dilation=2"});
  define(
      "_overlap_add(Tensor self, int dim, SymInt n, SymInt stride, SymInt padding, SymInt dilation) -> Tensor")
      .doc("Sums of windows where they lie: `dim`, elements of a window, and the next become one of `n`.")
      .bind(hidden)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        int k = c.dim("dim");
        return with(without(c.sizes("self"), k + 1), k, c.integer("n"));
      })
      .loop([](const LoopCall& c, Index i) {
        size_t k = size_t(c.dim("dim"));
        Expr stride = n_of(c.integer("stride")), dilation = n_of(c.integer("dilation")),
             padding = n_of(c.integer("padding")), places = n_of(c.sizes("self")[k + 1]);
        return reduce(c, monoid::sum, {c.sizes("self")[k]}, [&](Index b) {
          Expr start = i[k] + padding - b[0] * dilation, place = floordiv(start, stride);
          Expr valid = eq(place * stride, start) & inside(place, places);
          Expr x = c.load("self", inserted(with(i, int(k), clipped(place, places)), int(k), b[0]));
          return select(valid, x, constant(Scalar(int64_t(0)), x.dtype()));
        });
      })
      .samples({"self[3, 4], dim=0, n=7, stride=2, padding=1, dilation=1",
                "self[2, 2, 4, 3], dim=1, n=7, stride=1, padding=0, dilation=3"});
  define(
      "im2col(Tensor self, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor")
      .python("unfold(input, kernel_size, dilation=1, padding=0, stride=1)")
      .doc("The windows of [N, C, H, W] as columns: [N, C * kH * kW, windows].")
      .grad_name("Im2Col")
      .bind(hidden)
      .dtypes(d::floating | d::complex | d::boolean)
      .composite([](const Call& c, const Tensor& self) {
        check_images(c, self.sizes(), 3, "[N, C, H, W]");
        auto w = patches(c);
        Dims places = windows_of(c, w, self.sizes().last(2));
        Tensor x = _windows(self, -1, w[1].size, w[1].stride, w[1].padding, w[1].dilation);
        x = _windows(x, -3, w[0].size, w[0].stride, w[0].padding, w[0].dilation);  // [N, C, kH, H', kW, W']
        Dims sizes(self.sizes().first(size_t(self.dim()) - 3));
        sizes.push_back(self.size(-3) * w[0].size * w[1].size);
        sizes.push_back(places[0] * places[1]);
        return reshape(transpose(x, -3, -2), sizes);
      })
      .samples({"self[2, 3, 4, 5], kernel_size=[2, 3]",
                "self[2, 6, 5], kernel_size=[3], dilation=[2, 1], padding=[1], stride=[1, 2]"});
  define(
      "col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor")
      .python("fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1)")
      .doc("Sums of the columns that im2col makes of [N, C, *output_size] where their windows lie.")
      .grad_name("Col2Im")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Call& c, const Tensor& self) {
        check_images(c, self.sizes(), 2, "[N, C * kH * kW, windows]");
        auto w = patches(c);
        Dims to = c.ints("output_size", 2), places = windows_of(c, w, to);
        SymInt taps = w[0].size * w[1].size;
        runtime_check(self.size(-2) % taps == kZero, c.name())
            << "expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input "
            << to_string(self.sizes()) << " and " << shown("kernel_size", Dims(c.ints("kernel_size", 2)));
        runtime_check(self.size(-1) == places[0] * places[1], c.name())
            << "given output_size=" << to_string(SymSpan(to))
            << ", expected size of input's dimension 2 to match the "
            << "calculated number of sliding blocks " << places[0] << " * " << places[1] << ", but got input "
            << to_string(self.sizes());
        Dims split(self.sizes().first(size_t(self.dim()) - 2));
        for (auto s : {self.size(-2) / taps, w[0].size, w[1].size, places[0], places[1]}) split.push_back(s);
        Tensor x = transpose(reshape(self, split), -3, -2);  // [N, C, kH, H', kW, W']
        x = _overlap_add(x, -2, to[1], w[1].stride, w[1].padding, w[1].dilation);
        return _overlap_add(x, -3, to[0], w[0].stride, w[0].padding, w[0].dilation);
      })
      .samples({"self[2, 12, 9], output_size=[4, 4], kernel_size=[2]",
                "self[4, 6], output_size=[3, 4], kernel_size=[2], padding=[1, 0], stride=[2, 1]"});

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
        return narrowed(batch ? y : squeeze(y, {kZero}), input.dtype());
      })
      .samples(
          {"input[1, 2, 3, 3, 2], weight[2, 3, 2, 3, 2], bias[3]",
           "input[2, 2, 3, 2], weight[2, 1, 3, 2, 2], stride=2, padding=[1, 0, 0], output_padding=1, groups=2",
           "input[1, 2, 2, 3, 2], weight[2, 2, 2, 2, 2], dilation=[2, 1, 2]"});

  define(
      "max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) "
      "-> (Tensor, Tensor)")
      .python(
          "max_pool3d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window [..., D, H, W], and its position in the D x H x W volume.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::integral | d::floating)
      .procedure([](const Call& c, const Tensor& self) { return max_pooled(c, self); })
      .samples({"self![1, 2, 4, 5, 4], kernel_size=[2]",
                "self![2, 5, 4, 6], kernel_size=[3, 2, 3], stride=[2], padding=[1], dilation=[1, 2, 1]"});
  define(
      "max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor")
      .python(
          "max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window [..., D, H, W]; stride defaults to the kernel's size.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::integral | d::floating)
      .procedure([](const Call& c, const Tensor& self) { return std::get<0>(max_pooled(c, self)); })
      .samples({"self![1, 2, 4, 5, 4], kernel_size=[2]",
                "self![2, 5, 4, 6], kernel_size=[3], stride=[2], padding=[1], ceil_mode=True"});
  define(
      "avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor")
      .python(
          "avg_pool3d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, *, out=None)")
      .doc("Mean of each window [..., D, H, W].")
      .autocast(Autocast::fp32)
      .bind(nn_functional)
      .dtypes(d::integral | d::floating)
      .procedure([](const Call& c, const Tensor& self) {
        Dims kernel = three(c, "kernel_size"), stride = stride_of(c), padding = three(c, "padding");
        check_pool(c, self, stride, Dims{kOne, kOne, kOne});
        bool ceil = c.flag("ceil_mode"), count = c.flag("count_include_pad");
        std::optional<SymInt> none, one, divisor;  // the planes' sums where a divisor of all is given
        if (c.has("divisor_override")) {
          divisor = c.integer("divisor_override");
          runtime_check(*divisor != kZero, "avg_pool3d") << "divisor must be not zero";
          one = kOne;
        }
        auto pooled = [&](const Tensor& x, std::optional<SymInt> of_planes, std::optional<SymInt> of_all) {
          Tensor planes = avg_pool2d(volumes(x), last_two(kernel), last_two(stride), last_two(padding), ceil,
                                     count, of_planes);
          Tensor y = avg_pool2d(unsqueeze(rows(planes), 1), Dims{kernel[0], kOne}, Dims{stride[0], kOne},
                                Dims{padding[0], kZero}, ceil, count, of_all);
          return like_input(y, x, Dims(planes.sizes().last(2)));
        };
        if (is_floating(self.dtype())) return narrowed(pooled(wide(self), one, divisor), self.dtype());
        // Whole numbers are divided once: by what sums of ones and their mean tell.
        Tensor sums = pooled(self, kOne, kOne), ones = ones_like(self, DType::Float64);
        if (divisor) return div(sums, Scalar(divisor->guard_int()), "trunc");
        Tensor counts = round(div(pooled(ones, kOne, kOne), pooled(ones, none, none)));
        return div(sums, to_dtype(counts, self.dtype()), "trunc");
      })
      .samples(
          {"self[1, 2, 4, 5, 4], kernel_size=[2]",
           "self[2, 5, 4, 6], kernel_size=[3, 2, 3], stride=[2], padding=[1]",
           "self[1, 5, 4, 6], kernel_size=[3], stride=[2], padding=[1], ceil_mode=True, count_include_pad=False",
           "self[1, 4, 4, 4], kernel_size=[2], divisor_override=3"});
  define("_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor")
      .doc("Means of the windows that divide [..., D, H, W] evenly into `output_size`.")
      .bind(hidden)
      .dtypes(d::floating)
      .procedure([](const Call& c, const Tensor& self) {
        Dims to = adaptive_target(c, self);
        Tensor flat = rows(_adaptive_avg_pool2d(volumes(wide(self)), last_two(to)));
        Tensor y = _adaptive_avg_pool2d(unsqueeze(flat, 1), Dims{to[0], flat.size(-1)});
        return narrowed(like_input(y, self, last_two(to)), self.dtype());
      })
      .samples({"self[2, 2, 4, 5, 7], output_size=[3, 2, 3]", "self[3, 2, 4, 3], output_size=[4, 1, 2]"});
  define("_adaptive_max_pool3d(Tensor self, SymInt[3] output_size) -> (Tensor output, Tensor indices)")
      .doc(
          "Largest values of the windows that divide [..., D, H, W] evenly, and their positions in the volume.")
      .bind(hidden)
      .dtypes(d::integral | d::floating)
      .procedure([](const Call& c, const Tensor& self) {
        Dims to = adaptive_target(c, self);
        auto [best, at] = _adaptive_max_pool2d(volumes(self), last_two(to));
        return deepest(self, best, at,
                       [&](const Tensor& x) { return _adaptive_max_pool2d(x, Dims{to[0], x.size(-1)}); });
      })
      .samples({"self![2, 2, 4, 5, 7], output_size=[3, 2, 3]", "self![3, 2, 4, 3], output_size=[4, 1, 2]"});
}
