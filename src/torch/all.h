// PyTorch's C++ front end, as far as Facula has it: docs/cpp.md.
#pragma once
#include "torch/autograd.h"
#include "torch/cuda.h"
#include "torch/custom_class.h"
#include "torch/data.h"
#include "torch/jit.h"
#include "torch/library.h"
#include "torch/nn.h"
#include "torch/optim.h"
#include "torch/serialize.h"
#include "torch/types.h"
