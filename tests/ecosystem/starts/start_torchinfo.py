"""A table of a model's layers."""

import torch
from torchinfo import summary

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)
)
table = summary(
    model, (2, 3, 8, 8), verbose=0, col_names=("input_size", "output_size", "num_params", "mult_adds")
)
print(table)
print(summary(torch.nn.LSTM(4, 5, 2), (7, 2, 4), verbose=0))
