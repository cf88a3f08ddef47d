"""The home of quantisation in PyTorch."""

from . import quantization as quantization
