// Normalisations: compositions, fused.
#include "facula/autograd/calls.h"
#include "facula/catalog/normalisation.h"
#include "facula/catalog/widened.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog;
using facula::loop::Expr;
namespace d = facula::dtypes;

namespace {
// The per-channel vector [C] as [1, C, 1, ...].
Tensor per_channel(const Tensor& t, const Tensor& x) {
  Dims sizes(size_t(x.dim()), SymInt(int64_t(1)));
  sizes[1] = x.size(1);
  return view(t, sizes);
}
Ints all_but_channels(const Tensor& x) {
  Ints dims;
  for (int k = 0; k < x.dim(); ++k)
    if (k != 1) dims.push_back(k);
  return dims;
}
// Parameters and statistics have the input's dtype, or float32 for 16-bit inputs: anything else is a
// forgotten conversion.
void check_dtypes(const char* name, const Tensor& input,
                  std::initializer_list<std::optional<Tensor>> parameters) {
  for (auto& t : parameters)
    runtime_check(!t || t->dtype() == input.dtype() ||
                      (t->dtype() == DType::Float32 && compute_type(input.dtype()) == DType::Float32),
                  name)
        << "mixed dtypes: expected parameters of dtype " << input.dtype() << " as the input's, but found "
        << t->dtype() << hint("convert the input, x.to(facula.", t->dtype(), "), or the module");
}
void check_normalized(const char* name, const Tensor& input, SymSpan shape,
                      std::initializer_list<std::pair<const char*, std::optional<Tensor>>> parameters) {
  int n = int(shape.size());
  runtime_check(n > 0, name)
      << "expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got []";
  bool fits = n <= input.dim();
  for (int k = 0; fits && k < n; ++k) fits = input.size(input.dim() - n + k) == shape[size_t(k)];
  runtime_check(fits, name) << "given normalized_shape=" << to_string(shape)
                            << ", expected input with shape [*, " << to_string(shape).substr(1)
                            << ", but got input of size " << to_string(input.sizes());
  for (auto& [what, t] : parameters)
    runtime_check(!t || Dims(t->sizes()) == Dims(shape), name)
        << "expected " << what << " to be of same shape as normalized_shape, but got " << what << " of shape "
        << to_string(t->sizes()) << " and normalized_shape = " << to_string(shape);
}
// y with channels last in memory if x has them there, else row by row.
Tensor in_order_of(const Tensor& x, const Tensor& y) { return x.is_channels_last() ? y : contiguous(y); }
// 1 / sqrt(v + eps), rounded once.
Tensor reciprocal_deviation(const Tensor& v, const Tensor& eps) {
  return to_dtype(rsqrt(add(to_dtype(v, DType::Float64), eps)), v.dtype());
}
// centred * slope * weight + bias by channel, with one rounding an element.
Tensor scaled_and_shifted(const Tensor& centred, Tensor slope, const std::optional<Tensor>& weight,
                          const std::optional<Tensor>& bias) {
  if (weight) slope = mul(slope, wide(per_channel(*weight, centred)));
  if (bias) return _fused_multiply_add(slope, centred, wide(per_channel(*bias, centred)));
  return mul(centred, slope);
}
}  // namespace

FACULA_FAMILY(norm) {
  define(
      "layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor")
      .doc("(x - mean) / sqrt(var + eps) over the last dimensions, scaled and shifted.  Ba et al., 2016.")
      .grad_name("NativeLayerNorm")
      .bind(function | nn_functional)
      .dtypes(d::floating)
      .strict()
      .composite([](const Tensor& input, SymSpan shape, std::optional<Tensor> weight,
                    std::optional<Tensor> bias, const Tensor& eps) {
        int n = int(shape.size());
        check_normalized("layer_norm", input, shape, {{"weight", weight}, {"bias", bias}});
        check_dtypes("layer_norm", input, {weight, bias});
        Tensor x = wide(input);
        Ints dims;
        for (int k = 0; k < n; ++k) dims.push_back(input.dim() - n + k);
        auto [m, v] = catalog::moments(x, dims, true);
        Tensor y = mul(sub(x, m), rsqrt(add(v, eps)));
        if (weight) y = mul(y, wide(*weight));
        if (bias) y = add(y, wide(*bias));
        return contiguous(narrowed(y, input.dtype()));
      })
      .samples({"input[2, 3, 4], normalized_shape=[4]",
                "input[2, 3, 4], normalized_shape=[3, 4], weight[3, 4], bias[3, 4]",
                "input[0, 4], normalized_shape=[4]",
                "input[33, 129], normalized_shape=[129], weight[129], bias[129]"});
  define("rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor")
      .doc("x / sqrt(mean(x^2) + eps) over the last dimensions, scaled.  Zhang and Sennrich, 2019.")
      .grad_name("Mul")
      .bind(function | nn_functional)
      .dtypes(d::floating)
      .composite(
          [](const Tensor& input, SymSpan shape, std::optional<Tensor> weight, std::optional<double> eps) {
            supported_check(is_differentiable(input.dtype()), "rms_norm")
                << "expected a floating point or complex input, got " << input.dtype() << hint("x.float()");
            value_check(input.dim() >= int(shape.size()) || weight, "rms_norm")
                << "expected an input of at least " << shape.size() << " dimensions, as normalized_shape "
                << to_string(shape) << " has, got " << to_string(input.sizes());
            check_normalized("rms_norm", input, shape, {{"weight", weight}});
            Tensor x = wide(input);
            Ints dims;
            for (int k = 0; k < int(shape.size()); ++k) dims.push_back(input.dim() - int(shape.size()) + k);
            double e = eps                                        ? *eps
                       : real_of(input.dtype()) == DType::Float64 ? 2.220446049250313e-16
                                                                  : 1.1920928955078125e-07;
            Tensor y = mul(x, rsqrt(add(mean(mul(x, x), dims, true), e)));
            if (weight) y = mul(y, wide(*weight));
            return narrowed(y, input.dtype());
          })
      .samples({"input[2, 3, 4], normalized_shape=[4]", "input[2, 3, 4], normalized_shape=[4], weight[4]"});
  define(
      "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enabled=True) -> Tensor")
      .python("group_norm(input, num_groups, weight=None, bias=None, eps=1e-05)",
              "check_groups(input, num_groups)")
      .doc(
          "Normalisation of each of `num_groups` groups of channels (dimension 1), scaled and shifted by channel.  Wu and He, 2018.")
      .grad_name("NativeGroupNorm")
      .bind(function)
      .dtypes(d::floating)
      .strict()
      .composite([](const Tensor& input, int64_t groups, std::optional<Tensor> weight,
                    std::optional<Tensor> bias, const Tensor& eps, bool) {
        runtime_check(input.dim() >= 2, "group_norm")
            << "expected an input of at least 2 dimensions [N, C, ...], got " << to_string(input.sizes());
        runtime_check(groups > 0, "group_norm") << "num_groups must be positive, got " << groups;
        int64_t channels = input.size(1).guard_int();
        runtime_check(channels % groups == 0, "group_norm")
            << "Expected number of channels in input to be divisible by num_groups, but got input of shape "
            << to_string(input.sizes()) << " and num_groups=" << groups;
        for (auto& t : {weight, bias})
          runtime_check(!t || (t->dim() == 1 && t->size(0) == input.size(1)), "group_norm")
              << "weight and bias must have one element for each of the " << channels
              << " channels of the input " << to_string(input.sizes()) << ", got "
              << (t ? to_string(t->sizes()) : "");
        check_dtypes("group_norm", input, {weight, bias});
        // [N, C, ...] as [N, groups, C / groups, ...]: everything happens there, so that it is one fused
        // program.
        Dims split{input.size(0), SymInt(groups), SymInt(channels / groups)};
        Dims scale{SymInt(int64_t(1)), SymInt(groups), SymInt(channels / groups)};
        Ints dims{2};
        for (int k = 2; k < input.dim(); ++k) {
          split.push_back(input.size(k));
          scale.push_back(SymInt(int64_t(1)));
          dims.push_back(k + 1);
        }
        Tensor x = wide(reshape(input, split));
        auto [m, v] = catalog::moments(x, dims, true);
        Tensor slope = to_dtype(rsqrt(add(to_dtype(v, DType::Float64), eps)), x.dtype()), y;
        if (weight || bias) {  // x * slope + shift, one multiplication an element
          if (weight) slope = mul(slope, wide(view(*weight, scale)));
          Tensor shift =
              bias ? _fused_multiply_add(neg(slope), m, wide(view(*bias, scale))) : mul(neg(slope), m);
          y = _fused_multiply_add(slope, x, shift);
        } else {
          y = mul(sub(x, m), slope);
        }
        return view(in_order_of(input, narrowed(y, input.dtype())), input.sizes());
      })
      .samples({"input[2, 4, 3], num_groups=2", "input[2, 4], num_groups=2, weight[4], bias[4]",
                "input[2, 6, 3, 2], num_groups=3, weight[6], bias[6]", "input[2, 4], num_groups=4",
                "input[2, 4], num_groups=4, weight[4], bias[4]"});
  define(
      "_batch_norm_train(Tensor input, Tensor? weight, Tensor? bias, float eps) -> (Tensor output, Tensor mean, Tensor var)")
      .doc("Normalisation by the batch's own statistics, which it returns too (var without correction).")
      .grad_name("NativeBatchNorm")
      .bind(hidden)
      .dtypes(d::floating)
      .composite([](const Tensor& input, std::optional<Tensor> weight, std::optional<Tensor> bias,
                    const Tensor& eps) {
        Tensor x = wide(input);
        auto dims = all_but_channels(x);
        auto [m, v] = catalog::moments(x, dims, true);
        Tensor y = scaled_and_shifted(sub(x, m), reciprocal_deviation(v, eps), weight, bias);
        Dims channels{x.size(1)};
        return std::tuple(in_order_of(input, narrowed(y, input.dtype())), view(m, channels),
                          view(v, channels));
      })
      // Two sums a channel, where the derived gradient has four, and the weight last, as in PyTorch.
      .vjp([](const Vjp& v) {
        Tensor x = v["input"], grad = v.grad(0);
        if (!grad.defined()) grad = zeros_like(x);
        auto of = [](const Tensor& g) { return g.defined() ? std::optional(g) : nullopt; };
        auto [of_input, of_weight, of_bias] =
            _batch_norm_backward(grad, x, of(v["weight"]), v.result(1), v.result(2), of(v.grad(1)),
                                 of(v.grad(2)), v.call().real("eps"));
        auto narrow = [&](const char* parameter, const Tensor& g) {
          return v.needs(parameter) ? narrowed(g, v.call().dtype(parameter)) : Tensor();
        };
        return grads(of_input, narrow("weight", of_weight), narrow("bias", of_bias));
      })
      .samples({"input[4, 3, 2], weight[3], bias[3], eps=1e-05",
                "input[4, 3], weight=None, bias=None, eps=1e-05"});
  define(
      "_batch_norm_backward(Tensor grad, Tensor input, Tensor? weight, Tensor mean, Tensor var, Tensor? grad_mean, Tensor? grad_var, float eps) -> (Tensor, Tensor, Tensor)")
      .doc("The gradients of input, weight and bias of _batch_norm_train.")
      .bind(hidden)
      .dtypes(d::floating)
      .composite([](const Tensor& grad, const Tensor& input, std::optional<Tensor> weight, const Tensor& mean,
                    const Tensor& var, std::optional<Tensor> grad_mean, std::optional<Tensor> grad_var,
                    const Tensor& eps) {
        Tensor x = wide(input), g = wide(grad);
        auto dims = all_but_channels(x);
        Tensor centred = sub(x, per_channel(mean, x)), slope = per_channel(reciprocal_deviation(var, eps), x);
        Tensor total = sum(g, dims, true), product = sum(mul(g, centred), dims, true);
        SymInt count = input.numel() / max(input.size(1), SymInt(int64_t(1)));
        Tensor falling = div(mul(mul(product, slope), slope), count);
        Tensor y = mul(sub(sub(g, div(total, count)), mul(centred, falling)), slope);
        if (weight) y = mul(y, wide(per_channel(*weight, x)));
        if (grad_mean) y = add(y, div(per_channel(*grad_mean, x), count));
        if (grad_var) y = add(y, mul(centred, div(mul(per_channel(*grad_var, x), 2), count)));
        Dims channels{x.size(1)};
        return std::tuple(in_order_of(input, narrowed(y, input.dtype())), view(mul(product, slope), channels),
                          view(total, channels));
      })
      .samples(
          {"grad[4, 3, 2], input[4, 3, 2], weight[3], mean[3], var[3](0.1, 2), grad_mean=None, grad_var=None, eps=1e-05",
           "grad[4, 3], input[4, 3], weight=None, mean[3], var[3](0.1, 2), grad_mean[3], grad_var[3], eps=1e-05"});
  define(
      "_batch_norm_eval(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float eps) -> Tensor")
      .doc("Normalisation by given statistics.")
      .grad_name("NativeBatchNorm")
      .bind(hidden)
      .dtypes(d::floating)
      .composite([](const Tensor& input, std::optional<Tensor> weight, std::optional<Tensor> bias,
                    const Tensor& mean, const Tensor& var, const Tensor& eps) {
        Tensor x = wide(input);
        Tensor slope = per_channel(reciprocal_deviation(wide(var), eps), x);
        Tensor y = scaled_and_shifted(sub(x, per_channel(wide(mean), x)), slope, weight, bias);
        return in_order_of(input, narrowed(y, input.dtype()));
      })
      .samples({"input[4, 3, 2], weight[3], bias[3], running_mean[3], running_var[3](0.1, 2), eps=1e-05"});
  define("_update_running_mean(Tensor self, Tensor batch, Scalar momentum) -> Tensor")
      .doc("(1 - momentum) * self + momentum * batch.")
      .bind(hidden)
      .in_place()
      .pointwise(
          [](Expr running, Expr batch, Expr momentum) { return (1 - momentum) * running + momentum * batch; })
      .samples({"self[3], batch[3], momentum=0.1"});
  define("_update_running_var(Tensor self, Tensor batch, Scalar momentum, Scalar count) -> Tensor")
      .doc(
          "(1 - momentum) * self + momentum * batch, with Bessel's correction of a variance of `count` values.")
      .bind(hidden)
      .in_place()
      .pointwise([](Expr running, Expr batch, Expr momentum, Expr count) {
        return (1 - momentum) * running + momentum * (count / (count - 1)) * batch;
      })
      .samples({"self[3], batch[3], momentum=0.1, count=3"});
  define(
      "batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, "
      "bool training=False, float momentum=0.1, float eps=1e-05) -> Tensor")
      .doc(
          "Normalisation of each channel (dimension 1) over all others; in training by the batch's statistics, which then "
          "update running_mean and running_var (the latter with Bessel's correction).  Ioffe and Szegedy, 2015.")
      .bind(nn_functional)
      .dtypes(d::floating)
      .strict()
      .procedure([](const Tensor& input, std::optional<Tensor> running_mean,
                    std::optional<Tensor> running_var, std::optional<Tensor> weight,
                    std::optional<Tensor> bias, bool training, double momentum, double eps) {
        if (input.dim() == 1 && input.numel() == SymInt(int64_t(0))) return clone(input);
        auto few = [&] {
          return "expected an input of at least 2 dimensions [N, C, ...], got " + to_string(input.sizes());
        };
        if (training) index_check(input.dim() >= 2, "batch_norm") << few();
        else runtime_check(input.dim() >= 2, "batch_norm") << few();
        value_check(!training || !(eps <= 0), "batch_norm")
            << "eps must be positive during training, got " << eps;
        for (auto& t : {running_mean, running_var, weight, bias})
          runtime_check(!t || (t->dim() == 1 && t->size(0) == input.size(1)), "batch_norm")
              << "statistics, weight and bias must have one element for each of the " << input.size(1)
              << " channels of the input " << to_string(input.sizes()) << ", got "
              << (t ? to_string(t->sizes()) : "");
        check_dtypes("batch_norm", input, {running_mean, running_var, weight, bias});
        if (!training) {
          runtime_check(running_mean && running_var, "batch_norm")
              << "expected running_mean and running_var to be defined when training=False";
          return _batch_norm_eval(input, weight, bias, *running_mean, *running_var, eps);
        }
        value_check(running_mean.has_value() == running_var.has_value(), "batch_norm")
            << "running_mean and running_var must either both be None or neither be None";
        if (input.numel() == SymInt(int64_t(0))) return clone(input);
        SymInt count = input.numel() / input.size(1);
        value_check(count > SymInt(int64_t(1)), "batch_norm")
            << "Expected more than 1 value per channel when training, got input size "
            << to_string(input.sizes());
        auto [y, mean, var] = _batch_norm_train(input, weight, bias, eps);
        if (running_mean) _update_running_mean_(detach(*running_mean), detach(mean), momentum);
        if (running_var)  // the count as a size, which a program may know later
          autograd::invoke("_update_running_var",
                           {detach(*running_var), detach(var), Scalar(momentum), count}, op::Form::in_place);
        return y;
      })
      .samples({"input[4, 3, 2], running_mean[3], running_var[3](0.1, 2)",
                "input[4, 3, 2, 5], running_mean=None, running_var=None, weight[3], bias[3], training=True",
                "input[4, 3], running_mean=None, running_var=None, training=True"});
  define(
      "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
      "bool use_input_stats, float momentum, float eps, bool cudnn_enabled=True) -> Tensor")
      .python(
          "instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05)")
      .doc(
          "Normalisation of each channel of each sample of [N, C, ...] by its own statistics, whose means then update running_mean and "
          "running_var, or of all by these.  Ulyanov et al., 2016.")
      .bind(function)
      .dtypes(d::floating)
      .strict()
      .procedure([](const Tensor& input, std::optional<Tensor> weight, std::optional<Tensor> bias,
                    std::optional<Tensor> running_mean, std::optional<Tensor> running_var,
                    bool use_input_stats, double momentum, double eps, bool) {
        // Statistics of any dtype, unlike those of batch_norm.
        DType own = input.dtype(), wide_own = compute_type(own);
        auto counted = [&](const std::optional<Tensor>& t) {
          return t && t->dtype() != own ? std::optional(to_dtype(*t, wide_own)) : t;
        };
        if (!use_input_stats)
          return batch_norm(input, counted(running_mean), counted(running_var), weight, bias, false, momentum,
                            eps);
        bool several = input.dim() >= 2;
        SymInt spatial = several ? product(input.sizes().subspan(2)) : SymInt(int64_t(1));
        value_check(spatial != SymInt(int64_t(1)), "instance_norm")
            << "Expected more than 1 spatial element when training, got input size "
            << to_string(input.sizes());
        SymInt n = input.size(0), channels = input.size(1);
        index_check(n > SymInt(int64_t(0)) || (!running_mean && !running_var), "instance_norm")
            << "no sample to update running_mean and running_var by, got input size "
            << to_string(input.sizes());
        Dims joined{int64_t(1), n * channels};
        for (int k = 2; k < input.dim(); ++k) joined.push_back(input.size(k));
        auto each = [&](const std::optional<Tensor>& t) {
          return t ? std::optional(repeat(*t, Sizes{n})) : std::nullopt;
        };
        auto mean_of = each(counted(running_mean)), var_of = each(counted(running_var));
        Tensor y = batch_norm(reshape(input, joined), mean_of, var_of, each(weight), each(bias), true,
                              momentum, eps);
        auto update = [&](const std::optional<Tensor>& running, const std::optional<Tensor>& of) {
          if (running) copy_(detach(*running), mean(view(*of, Sizes{n, channels}), 0));
        };
        update(running_mean, mean_of);
        update(running_var, var_of);
        return view(y, input.sizes());
      })
      .samples(
          {"input[2, 3, 4], weight[3], bias[3], running_mean=None, running_var=None, use_input_stats=True, momentum=0.1, eps=1e-05",
           "input[2, 3, 4], weight=None, bias=None, running_mean[3], running_var[3](0.1, 2), use_input_stats=False, momentum=0.1, eps=1e-05"});
  define(
      "local_response_norm(Tensor self, int size, float alpha=0.0001, float beta=0.75, float k=1.0) -> Tensor")
      .doc(
          "self / (k + alpha * mean of squares over `size` neighbouring channels) ** beta.  Krizhevsky et al., 2012.")
      .grad_name("Div")
      .bind(nn_functional)
      .composite([](const Tensor& self, int64_t size, const Tensor& alpha, const Tensor& beta,
                    const Tensor& k) {
        value_check(self.dim() >= 3, "local_response_norm")
            << "Expected 3D or higher dimensionality input (got " << self.dim() << " dimensions)";
        if (self.numel() == SymInt(int64_t(0))) return mul(self, 1);
        Dims beside(size_t(2 * (self.dim() - 2)), SymInt(int64_t(0)));
        beside.push_back(SymInt(size / 2));
        beside.push_back(SymInt((size - 1) / 2));
        Tensor windows =
            unfold(constant_pad_nd(mul(self, self), beside, 0), 1, SymInt(size), SymInt(int64_t(1)));
        Tensor means = is_floating(self.dtype()) ? mean(windows, -1) : div(sum(windows, -1), size, "floor");
        return div(self, pow(add(mul(means, alpha), k), beta));
      })
      .samples({"self[2, 5, 3], size=3", "self[2, 4, 3, 2], size=2, alpha=0.1, beta=0.5, k=2.0"});
}
