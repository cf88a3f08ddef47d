// Operators by PyTorch's internal names, as its tracers and exporters write them: made of the public ones.
#include "facula/catalog/normalisation.h"
#include "facula/catalog/softmax.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using catalog::narrowed, catalog::wide;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
constexpr const char* kStatistics = "PyTorch marks saved statistics as not differentiable";

MaybeTensor maybe(const std::optional<Tensor>& t) { return t ? MaybeTensor(*t) : MaybeTensor(); }

// Mean and reciprocal deviation over `dims`. As in PyTorch those of groups alone carry a gradient.
struct Statistics {
  Tensor mean, rstd;
};
Statistics statistics(const Tensor& x, const Ints& dims, double eps, bool keepdim) {
  auto [mean, total] = _moments(x, dims, keepdim);
  return {mean, rsqrt(add(div(total, reduced_count(x.sizes(), dims)), eps))};
}

std::tuple<Tensor, Tensor, Tensor> batch_normalised(const Tensor& x, std::optional<Tensor> weight,
                                                    std::optional<Tensor> bias,
                                                    std::optional<Tensor> running_mean,
                                                    std::optional<Tensor> running_var, bool training,
                                                    double momentum, double eps) {
  if (!training) {
    Tensor y = batch_norm(x, maybe(running_mean), maybe(running_var), maybe(weight), maybe(bias), false,
                          momentum, eps);
    return {y, empty(Sizes{int64_t(0)}, x.dtype()), empty(Sizes{int64_t(0)}, x.dtype())};
  }
  Tensor y =
      batch_norm(x, maybe(running_mean), maybe(running_var), maybe(weight), maybe(bias), true, momentum, eps);
  Ints dims;
  for (int k = 0; k < x.dim(); ++k)
    if (k != 1) dims.push_back(k);
  // Two passes, as PyTorch's batch_norm: the mean of infinities is one.
  auto [mean, variance] = catalog::moments(wide(detach(x)), dims, false);
  return {y, narrowed(mean, x.dtype()), narrowed(rsqrt(add(variance, eps)), x.dtype())};
}

// Without training PyTorch's kernel reads what out= holds of the statistics, by channel.
DType statistics_by_channel(const Call& c, std::span<const Tensor> out) {
  for (auto& t : out.subspan(1))
    runtime_check(c.flag("training") || t.dim() == 1, c.name())
        << "expected out= tensors of 1 dimension for the statistics, got shape " << to_string(t.sizes());
  return c.dtype("input");
}

}  // namespace

FACULA_FAMILY(native) {
  define(
      "native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)")
      .doc("batch_norm, with the mean and the reciprocal deviation of the batch.")
      .bind(function)
      .with_out()
      .for_out(statistics_by_channel)
      .non_differentiable({1, 2}, kStatistics)
      .procedure(batch_normalised)
      .samples(
          {"input[4, 3], weight[3], bias[3], running_mean=None, running_var=None, training=True, momentum=0.1, eps=1e-5"});
  define(
      "_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)")
      .doc("native_batch_norm with running statistics.")
      .bind(function)
      .with_out()
      .for_out(statistics_by_channel)
      .non_differentiable({1, 2}, kStatistics)
      .procedure([](const Tensor& input, std::optional<Tensor> weight, std::optional<Tensor> bias,
                    const Tensor& mean, const Tensor& var, bool training, double momentum, double eps) {
        return batch_normalised(input, weight, bias, mean, var, training, momentum, eps);
      })
      .samples(
          {"input[4, 3], weight[3], bias[3], running_mean[3], running_var[3](0.5, 1), training=True, momentum=0.1, eps=1e-5"});
  define(
      "_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)")
      .doc("native_batch_norm without running statistics.")
      .bind(function)
      .non_differentiable({1, 2}, kStatistics)
      .procedure([](const Tensor& input, std::optional<Tensor> weight, std::optional<Tensor> bias,
                    bool training, double momentum, double eps) {
        return batch_normalised(input, weight, bias, nullopt, nullopt, training, momentum, eps);
      })
      .samples({"input[4, 3], weight[3], bias[3], training=True, momentum=0.1, eps=1e-5"});
  define(
      "_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)")
      .doc(
          "native_batch_norm of training, which updates the running statistics, and an empty tensor of bytes.")
      .bind(hidden)
      .with_out()
      .non_differentiable({1, 2, 3}, kStatistics)
      .procedure([](const Tensor& input, std::optional<Tensor> weight, std::optional<Tensor> bias,
                    const Tensor& mean, const Tensor& var, double momentum, double eps) {
        auto [y, of_batch, rstd] = batch_normalised(input, weight, bias, mean, var, true, momentum, eps);
        return std::tuple(y, of_batch, rstd, empty(Sizes{int64_t(0)}, DType::UInt8));
      })
      .samples(
          {"input[4, 3], weight[3], bias[3], running_mean[3], running_var[3](0.5, 1), momentum=0.1, eps=1e-5"});
  define("native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor")
      .doc("The gradient of native_dropout: scale * grad_output where the mask is, NaN times 0 included.")
      .bind(hidden)
      .composite(
          [](const Tensor& grad, const Tensor& mask, double scale) { return mul(mul(grad, mask), scale); })
      .samples({"grad_output[3, 4], mask?[3, 4], scale=2.0"});
  define(
      "max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor")
      .doc("The gradient of max_pool2d_with_indices: grad_output added up at the indices of each plane.")
      .bind(hidden)
      .dtypes(d::floating)
      .composite([](const Call&, const Tensor& grad, const Tensor& self, SymSpan, SymSpan, SymSpan, SymSpan,
                    bool, const Tensor& indices) {
        runtime_check(std::ranges::equal(grad.sizes(), indices.sizes()), "max_pool2d_with_indices_backward")
            << "expected grad_output and indices of the same shape, got " << to_string(grad.sizes())
            << " and " << to_string(indices.sizes());
        Dims planes(self.sizes().first(self.sizes().size() - 2));
        planes.push_back(self.size(-1) * self.size(-2));
        Tensor y = scatter_add(zeros(planes, wide(grad).dtype()), -1, flatten(indices, -2, -1),
                               flatten(wide(grad), -2, -1));
        return reshape(narrowed(y, grad.dtype()), self.sizes());
      })
      .samples(
          {"grad_output[1, 2, 1, 2], self[1, 2, 2, 4], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False, indices<8>[1, 2, 1, 2]"});
  define(
      "_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor")
      .doc("Planes interpolated linearly to output_size; what becomes smaller is averaged.")
      .bind(hidden)
      .procedure([](const Tensor& self, SymSpan size, bool align, std::optional<double> scales_h,
                    std::optional<double> scales_w) {
        return _interpolate(self, size, scales_h.value_or(0.0), scales_w.value_or(0.0), 0.0, "smooth-linear",
                            align);
      })
      .samples({"self[1, 2, 6, 5], output_size=[3, 4], align_corners=False"});
  define(
      "_upsample_bilinear2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor")
      .doc("The same to output_size, or to scale_factors times the size.")
      .bind(hidden)
      .procedure([](const Tensor& input, std::optional<SymSpan> output_size, bool align,
                    std::optional<std::vector<double>> scale_factors) {
        runtime_check(output_size.has_value() != scale_factors.has_value(), "_upsample_bilinear2d_aa")
            << "expected either output_size or scale_factors";
        if (output_size) return _interpolate(input, *output_size, 0.0, 0.0, 0.0, "smooth-linear", align);
        auto& by = *scale_factors;
        runtime_check(by.size() == 2 && input.dim() == 4, "_upsample_bilinear2d_aa")
            << "expected 2 scale_factors and input of 4 dimensions, got " << by.size() << " and shape "
            << to_string(input.sizes());
        Dims size;
        for (size_t k = 0; k < by.size(); ++k)
          size.push_back(int64_t(double(input.size(int(k) - int(by.size())).guard_int()) * by[k]));
        return _interpolate(input, size, by[0], by[1], 0.0, "smooth-linear", align);
      })
      .samples({"input[1, 2, 6, 5], output_size=None, align_corners=False, scale_factors=[0.5, 1.3]"});
  define(
      "native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)")
      .doc("layer_norm, with the mean and the reciprocal deviation of each row.")
      .bind(function)
      .non_differentiable({1, 2}, kStatistics)
      .composite([](const Tensor& input, SymSpan shape, std::optional<Tensor> weight,
                    std::optional<Tensor> bias, double eps) {
        Tensor y = layer_norm(input, shape, maybe(weight), maybe(bias), eps);
        Ints dims;
        for (int k = input.dim() - int(shape.size()); k < input.dim(); ++k) dims.push_back(k);
        auto [mean, rstd] = statistics(detach(input), dims, eps, true);
        return std::tuple(y, mean, rstd);
      })
      .samples({"input[4, 3], normalized_shape=[3], weight[3], bias[3], eps=1e-5"});
  define(
      "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)")
      .doc("group_norm, with the mean and the reciprocal deviation of each group.")
      .bind(function)
      .procedure([](const Tensor& input, std::optional<Tensor> weight, std::optional<Tensor> bias, SymInt N,
                    SymInt C, SymInt HxW, int64_t group, double eps) {
        Tensor y = group_norm(input, group, maybe(weight), maybe(bias), eps);
        Tensor groups = reshape(input, Sizes{N, SymInt(group), C / SymInt(group) * HxW});
        auto [mean, rstd] = statistics(groups, Ints{2}, eps, false);
        return std::tuple(y, mean, rstd);
      })
      .samples({"input[2, 4, 3], weight[4], bias[4], N=2, C=4, HxW=3, group=2, eps=1e-5"});
  define("_safe_softmax(Tensor self, int dim, dtype? dtype=None) -> Tensor")
      .doc("softmax along `dim`, 0 for lines of -inf.")
      .bind(hidden)
      .composite([](const Tensor& self, int64_t dim, std::optional<DType> dtype) {
        Tensor y = softmax(self, dim, dtype);
        return where(all(eq(self, -std::numeric_limits<double>::infinity()), Sizes{dim}, true), zeros_like(y),
                     y);
      })
      .vjp(catalog::gradient_of_softmax(true))
      .samples({"self[3, 4], dim=1"});
  define("_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor")
      .converting_out()
      .bad_conversion(ErrorType::TypeError)
      .grad_name("Cat")
      .doc(
          "Each tensor padded to num_chunks equal chunks along `dim`, chunk k of all flattened and joined as line k.")
      .bind(hidden)
      .composite([](const std::vector<Tensor>& tensors, int64_t dim, int64_t chunks) {
        runtime_check(!tensors.empty() && chunks > 0, "_chunk_cat")
            << "expected tensors and num_chunks > 0, got " << tensors.size() << " and " << chunks;
        dim = wrap_dim("_chunk_cat", dim, tensors[0].dim());
        std::vector<Tensor> lines;
        for (auto& t : tensors) {
          runtime_check(dim < t.dim() && t.numel() > SymInt(int64_t(0)), "_chunk_cat")
              << "expected non-empty tensors with dimension " << dim << ", got shape "
              << to_string(t.sizes());
          SymInt n = t.size(int(dim)), each = (n + SymInt(chunks - 1)) / SymInt(chunks);
          Dims pad(size_t(2 * (t.dim() - dim)), SymInt(int64_t(0)));
          pad.back() = each * SymInt(chunks) - n;
          Dims shape(t.sizes().first(size_t(dim)));
          shape.push_back(chunks), shape.push_back(int64_t(-1));
          lines.push_back(reshape(constant_pad_nd(t, pad, 0), shape));
        }
        return cat(lines, dim + 1);
      })
      .samples({"tensors{[5, 2], [3]}, dim=0, num_chunks=2"});
}
