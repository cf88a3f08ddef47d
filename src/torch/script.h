// The C++ front end under PyTorch's names without torch::nn: for libraries of operators, and for programs that run saved ones.
#pragma once
#include "torch/autograd.h"
#include "torch/custom_class.h"
#include "torch/jit.h"
#include "torch/library.h"
#include "torch/types.h"
