// class_ and what belongs to it: facula/extend/class.h under PyTorch's names.
#pragma once
#include "facula/extend/class.h"
#include "torch/types.h"

namespace torch {
using facula::arg;
using facula::class_;
using facula::CustomClassHolder;
using facula::init;
}  // namespace torch
