"""Counts of operations and parameters, and the focal loss."""

import torch
from fvcore.nn import FlopCountAnalysis, flop_count_table, parameter_count, sigmoid_focal_loss, smooth_l1_loss
from made import data, fill, show

model = fill(
    torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)
    )
)
show("parameters", dict(parameter_count(model)))
show("focal", sigmoid_focal_loss(data(4, 5), (data(4, 5, seed=1) > 0).float(), alpha=0.25, reduction="mean"))
show("smooth", smooth_l1_loss(data(4), data(4, seed=1), beta=0.5, reduction="sum"))
count = FlopCountAnalysis(model, data(1, 3, 8, 8))
show("operations", count.total())
print(flop_count_table(count))
