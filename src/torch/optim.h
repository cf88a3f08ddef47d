// torch::optim.
#pragma once
#include "torch/optim/optimizers.h"

namespace torch::optim {
using ReduceLROnPlateauScheduler = ReduceLROnPlateau;
}
