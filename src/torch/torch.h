// PyTorch's C++ front end, as far as Facula has it: docs/cpp.md.
#pragma once
#include "torch/all.h"
