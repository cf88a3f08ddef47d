// Initial values of parameters, as nn.init in Python: filled in place, without recording, and given back. The
// numbers are those that Python draws.
#pragma once
#include <string_view>

#include "facula/tensor/tensor.h"

namespace facula {
class Generator;
}

namespace facula::nn::init {

double calculate_gain(std::string_view nonlinearity, double param = 0.01);  // ValueError for an unknown one
const Tensor& uniform_(const Tensor& t, double a = 0, double b = 1, Generator* generator = nullptr);
const Tensor& normal_(const Tensor& t, double mean = 0, double std = 1, Generator* generator = nullptr);
const Tensor& constant_(const Tensor& t, double value);
const Tensor& ones_(const Tensor& t);
const Tensor& zeros_(const Tensor& t);
// Glorot and Bengio, 2010.
const Tensor& xavier_uniform_(const Tensor& t, double gain = 1, Generator* generator = nullptr);
const Tensor& xavier_normal_(const Tensor& t, double gain = 1, Generator* generator = nullptr);
// He et al., 2015.
const Tensor& kaiming_uniform_(const Tensor& t, double a = 0, std::string_view mode = "fan_in",
                               std::string_view nonlinearity = "leaky_relu", Generator* generator = nullptr);
const Tensor& kaiming_normal_(const Tensor& t, double a = 0, std::string_view mode = "fan_in",
                              std::string_view nonlinearity = "leaky_relu", Generator* generator = nullptr);
int64_t fan_in(const Tensor& t);  // inputs of a unit of a weight; ValueError with fewer than 2 dimensions
int64_t fan_out(const Tensor& t);

}  // namespace facula::nn::init
