"""Counts of operations and parameters."""

import torch
from thop import clever_format, profile

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(288, 5),
)
operations, parameters = profile(model, inputs=(torch.zeros(1, 3, 8, 8),), verbose=False)
print("operations", operations, "parameters", parameters)
print(*clever_format([operations, parameters], "%.3f"))
