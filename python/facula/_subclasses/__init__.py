"""PyTorch's inner home of tensors that stand in for others while a program is recorded: Facula makes none."""

from . import fake_tensor as fake_tensor
