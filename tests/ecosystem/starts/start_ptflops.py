"""Counts of operations of a network."""

import torch
from ptflops import get_model_complexity_info

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(288, 5),
)
for backend in ("pytorch", "aten"):
    operations, parameters = get_model_complexity_info(
        model, (3, 8, 8), as_strings=False, print_per_layer_stat=False, verbose=False, backend=backend
    )
    print(backend, operations, parameters)
