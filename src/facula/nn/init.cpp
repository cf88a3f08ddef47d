#include "facula/nn/init.h"

#include <cmath>

#include "facula/autograd/autograd.h"
#include "facula/ops.h"

namespace facula::nn::init {

double calculate_gain(std::string_view nonlinearity, double param) {
  for (auto linear : {"linear", "conv1d", "conv2d", "conv3d", "sigmoid", "conv_transpose1d",
                      "conv_transpose2d", "conv_transpose3d"})
    if (nonlinearity == linear) return 1.0;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2.0 / (1 + std::pow(param, 2)));
  if (nonlinearity == "selu") return 3.0 / 4;
  value_check(false, "calculate_gain") << "Unsupported nonlinearity " << nonlinearity;
  return 0;
}

namespace {
int64_t fan(const Tensor& t, int d) {
  value_check(t.dim() >= 2, "init")
      << "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions";
  int64_t field = 1;
  for (int k = 2; k < t.dim(); ++k) field *= t.size(k).concrete();
  return t.size(d).concrete() * field;
}
int64_t fan(const Tensor& t, std::string_view mode) {
  value_check(mode == "fan_in" || mode == "fan_out", "init")
      << "Mode " << mode << " not supported, please use one of ['fan_in', 'fan_out']";
  return mode == "fan_in" ? fan_in(t) : fan_out(t);
}
}  // namespace

int64_t fan_in(const Tensor& t) { return fan(t, 1); }
int64_t fan_out(const Tensor& t) { return fan(t, 0); }

const Tensor& uniform_(const Tensor& t, double a, double b, Generator* generator) {
  autograd::GradMode off(false);
  facula::uniform_(t, a, b, generator);
  return t;
}
const Tensor& normal_(const Tensor& t, double mean, double std, Generator* generator) {
  autograd::GradMode off(false);
  facula::normal_(t, mean, std, generator);
  return t;
}
const Tensor& constant_(const Tensor& t, double value) {
  autograd::GradMode off(false);
  fill_(t, value);
  return t;
}
const Tensor& ones_(const Tensor& t) { return constant_(t, 1); }
const Tensor& zeros_(const Tensor& t) { return constant_(t, 0); }
const Tensor& xavier_uniform_(const Tensor& t, double gain, Generator* generator) {
  double bound = gain * std::sqrt(6.0 / double(fan_in(t) + fan_out(t)));
  return init::uniform_(t, -bound, bound, generator);
}
const Tensor& xavier_normal_(const Tensor& t, double gain, Generator* generator) {
  return init::normal_(t, 0, gain * std::sqrt(2.0 / double(fan_in(t) + fan_out(t))), generator);
}
const Tensor& kaiming_uniform_(const Tensor& t, double a, std::string_view mode,
                               std::string_view nonlinearity, Generator* generator) {
  if (t.numel() == 0) return t;
  double bound = std::sqrt(3.0) * calculate_gain(nonlinearity, a) / std::sqrt(double(fan(t, mode)));
  return init::uniform_(t, -bound, bound, generator);
}
const Tensor& kaiming_normal_(const Tensor& t, double a, std::string_view mode, std::string_view nonlinearity,
                              Generator* generator) {
  if (t.numel() == 0) return t;
  return init::normal_(t, 0, calculate_gain(nonlinearity, a) / std::sqrt(double(fan(t, mode))), generator);
}

}  // namespace facula::nn::init
