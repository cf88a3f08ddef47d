"""PyTorch's package of quantisation."""

from . import nn as nn
from . import quantization as quantization
