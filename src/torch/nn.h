// torch::nn.
#pragma once
#include "torch/nn/containers.h"
#include "torch/nn/functional.h"
#include "torch/nn/init.h"
#include "torch/nn/layers.h"
