// The C++ front end under PyTorch's names, as far as Facula has it: docs/extending.md.
#pragma once
#include "torch/autograd.h"
#include "torch/custom_class.h"
#include "torch/library.h"
#include "torch/types.h"
