"""The home of quantisation in PyTorch."""

from . import nn as nn
from . import quantization as quantization
