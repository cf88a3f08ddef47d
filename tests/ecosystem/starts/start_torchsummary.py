"""A table of a model's layers."""

import torch
from torchsummary import summary

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
    torch.nn.Linear(72, 5),
)
summary(model, (3, 8, 8), device="cpu")
