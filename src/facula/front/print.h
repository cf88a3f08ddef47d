// Tensors as PyTorch's C++ front end prints them: rows of numbers, then "[ CPUFloatType{2,2} ]". Python's form is
// to_string() of tensor/tensor.h.
#pragma once
#include <string>
#include <typeinfo>

#include "facula/nn/module.h"
#include "facula/tensor/tensor.h"

namespace facula::front {

// Lines are at most `width` characters; matrices that are wider come in parts, by columns.
std::string printed(const Tensor& t, int64_t width = 80);
std::string type_name(const Tensor& t);  // "CPUFloatType"

// A module as PyTorch's C++ front end prints it: "Conv2d(1, 16, kernel_size=[3, 3], bias=false)" where Python's form has
// kernel_size=(3, 3) and bias=False.
std::string printed(const nn::Module& m);
std::string class_name(const std::type_info& type);  // readable: "NetImpl"

}  // namespace facula::front
