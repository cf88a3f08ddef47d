#include "facula/nn/layers.h"

#include <cmath>

#include "facula/autograd/autograd.h"
#include "facula/nn/init.h"
#include "facula/ops.h"

namespace facula::nn {

namespace {
Tensor empty_of(std::initializer_list<SymInt> sizes, std::optional<DType> dtype) {
  for (SymInt n : sizes) value_check(n >= SymInt(0), "nn") << "sizes of layers can't be negative: " << n;
  return facula::empty(sizes, dtype);
}
Ints list(Pair p) { return {p.height, p.width}; }
std::string text(Pair p) { return "(" + std::to_string(p.height) + ", " + std::to_string(p.width) + ")"; }
std::string text(bool b) { return b ? "True" : "False"; }
std::string text(double d) { return io::to_string(io::Value(d)); }
}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias, std::optional<DType> dtype)
    : Module("Linear") {
  weight = register_parameter("weight", empty_of({out_features, in_features}, dtype));
  bias = register_parameter("bias", with_bias ? empty_of({out_features}, dtype) : Tensor());
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  double bound = in_features > 0 ? 1 / std::sqrt(double(in_features)) : 0;
  if (with_bias) init::uniform_(bias, -bound, bound);
  describe("in_features=" + std::to_string(in_features) + ", out_features=" + std::to_string(out_features) +
           ", bias=" + text(with_bias));
}
Tensor Linear::operator()(const Tensor& x) const { return linear(x, weight, bias); }

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel_size, Options options)
    : Module("Conv2d"), options_(options) {
  value_check(options.groups > 0, "Conv2d") << "groups must be a positive integer";
  value_check(in_channels % options.groups == 0, "Conv2d") << "in_channels must be divisible by groups";
  value_check(out_channels % options.groups == 0, "Conv2d") << "out_channels must be divisible by groups";
  weight = register_parameter("weight", empty_of({out_channels, in_channels / options.groups,
                                                  kernel_size.height, kernel_size.width},
                                                 options.dtype));
  bias = register_parameter("bias", options.bias ? empty_of({out_channels}, options.dtype) : Tensor());
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (int64_t n = init::fan_in(weight); n && options.bias) {
    double bound = 1 / std::sqrt(double(n));
    init::uniform_(bias, -bound, bound);
  }
  std::string s = std::to_string(in_channels) + ", " + std::to_string(out_channels) +
                  ", kernel_size=" + text(kernel_size) + ", stride=" + text(options.stride);
  if (options.padding.height || options.padding.width) s += ", padding=" + text(options.padding);
  if (options.dilation.height != 1 || options.dilation.width != 1)
    s += ", dilation=" + text(options.dilation);
  if (options.groups != 1) s += ", groups=" + std::to_string(options.groups);
  describe(s + (options.bias ? "" : ", bias=False"));
}
Tensor Conv2d::operator()(const Tensor& x) const {
  return conv2d(x, weight, bias, list(options_.stride), list(options_.padding), list(options_.dilation),
                options_.groups);
}

BatchNorm::BatchNorm(const char* kind, int lowest_rank, int highest_rank, int64_t num_features,
                     Options options)
    : Module(kind), options_(options), lowest_rank_(lowest_rank), highest_rank_(highest_rank) {
  weight = register_parameter("weight", options.affine ? empty_of({num_features}, options.dtype) : Tensor());
  bias = register_parameter("bias", options.affine ? empty_of({num_features}, options.dtype) : Tensor());
  bool track = options.track_running_stats;
  running_mean = register_buffer("running_mean", track ? zeros(num_features, options.dtype) : Tensor());
  running_var = register_buffer("running_var", track ? ones(num_features, options.dtype) : Tensor());
  num_batches_tracked =
      register_buffer("num_batches_tracked", track ? zeros(Sizes(SymSpan()), DType::Int64) : Tensor());
  if (options.affine) {
    init::ones_(weight);
    init::zeros_(bias);
  }
  describe(std::to_string(num_features) + ", eps=" + text(options.eps) + ", momentum=" +
           (options.momentum ? text(*options.momentum) : "None") + ", affine=" + text(options.affine) +
           ", bias=" + text(options.affine) + ", track_running_stats=" + text(track));
}
Tensor BatchNorm::operator()(const Tensor& x) const {
  value_check(x.dim() >= lowest_rank_ && x.dim() <= highest_rank_, kind().c_str())
      << "expected " << lowest_rank_ << "D"
      << (highest_rank_ > lowest_rank_ ? " or " + std::to_string(highest_rank_) + "D" : "") << " input (got "
      << x.dim() << "D input)";
  double momentum = options_.momentum.value_or(0.0);
  bool training = is_training(), track = options_.track_running_stats;
  if (training && track) {
    add_(num_batches_tracked, 1);
    if (!options_.momentum) momentum = 1.0 / num_batches_tracked.item().to_double();
  }
  bool keep = !training || track;
  return batch_norm(x, keep ? running_mean : Tensor(), keep ? running_var : Tensor(), weight, bias,
                    training || !track, momentum, options_.eps);
}

LayerNorm::LayerNorm(std::vector<int64_t> normalized_shape, Options options)
    : Module("LayerNorm"), shape_(std::move(normalized_shape)), eps_(options.eps) {
  auto make = [&](bool there) { return there ? facula::empty(shape_, options.dtype) : Tensor(); };
  weight = register_parameter("weight", make(options.elementwise_affine));
  bias = register_parameter("bias", make(options.elementwise_affine && options.bias));
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
  io::Tuple sizes;
  for (int64_t n : shape_) sizes.items.push_back(n);
  describe(io::to_string(sizes) + ", eps=" + text(eps_) +
           ", elementwise_affine=" + text(options.elementwise_affine) + ", bias=" + text(bias.defined()));
}
Tensor LayerNorm::operator()(const Tensor& x) const { return layer_norm(x, shape_, weight, bias, eps_); }

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, std::optional<int64_t> padding_idx,
                     std::optional<DType> dtype)
    : Module("Embedding"), padding_idx_(-1) {
  if (padding_idx) {
    value_check(*padding_idx >= -num_embeddings && *padding_idx < num_embeddings, "Embedding")
        << "Padding_idx must be within num_embeddings";
    padding_idx_ = *padding_idx < 0 ? *padding_idx + num_embeddings : *padding_idx;
  }
  weight = register_parameter("weight", empty_of({num_embeddings, embedding_dim}, dtype));
  init::normal_(weight);
  if (padding_idx) {
    autograd::GradMode off(false);
    fill_(select(weight, 0, padding_idx_), 0);
  }
  describe(std::to_string(num_embeddings) + ", " + std::to_string(embedding_dim) +
           (padding_idx ? ", padding_idx=" + std::to_string(padding_idx_) : ""));
}
Tensor Embedding::operator()(const Tensor& indices) const { return embedding(weight, indices, padding_idx_); }

Dropout::Dropout(double p) : Module("Dropout"), p_(p) {
  value_check(p >= 0 && p <= 1, "Dropout") << "dropout probability has to be between 0 and 1, but got " << p;
  describe("p=" + text(p) + ", inplace=False");
}
Tensor Dropout::operator()(const Tensor& x) const {
  return is_training() && p_ > 0 ? dropout(x, p_, true) : x;
}

ReLU::ReLU() : Module("ReLU") {}
Tensor ReLU::operator()(const Tensor& x) const { return relu(x); }

GELU::GELU(std::string approximate) : Module("GELU"), approximate_(std::move(approximate)) {
  describe("approximate='" + approximate_ + "'");
}
Tensor GELU::operator()(const Tensor& x) const { return gelu(x, approximate_); }

MaxPool2d::MaxPool2d(Pair kernel_size, Options options)
    : Module("MaxPool2d"), kernel_size_(kernel_size), options_(options) {
  auto short_text = [](Pair p) { return p.height == p.width ? std::to_string(p.height) : text(p); };
  describe("kernel_size=" + short_text(kernel_size) + ", stride=" +
           short_text(options.stride.value_or(kernel_size)) + ", padding=" + short_text(options.padding) +
           ", dilation=" + short_text(options.dilation) + ", ceil_mode=" + text(options.ceil_mode));
}
Tensor MaxPool2d::operator()(const Tensor& x) const {
  return max_pool2d(x, list(kernel_size_), list(options_.stride.value_or(kernel_size_)),
                    list(options_.padding), list(options_.dilation), options_.ceil_mode);
}

Flatten::Flatten(int64_t start_dim, int64_t end_dim)
    : Module("Flatten"), start_dim_(start_dim), end_dim_(end_dim) {
  describe("start_dim=" + std::to_string(start_dim) + ", end_dim=" + std::to_string(end_dim));
}
Tensor Flatten::operator()(const Tensor& x) const { return flatten(x, start_dim_, end_dim_); }

Tensor Sequential::operator()(const Tensor& x) const {
  Tensor y = x;
  for (auto& call : *calls_) y = call(y);
  return y;
}

}  // namespace facula::nn
