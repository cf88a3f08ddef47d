"""Modules of quantised models and of models that are quantised."""

from . import intrinsic as intrinsic
from . import qat as qat
from . import quantized as quantized
