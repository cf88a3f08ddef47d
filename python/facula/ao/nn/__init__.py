"""Modules of quantised models, as far as floating-point models use them."""

from . import quantized as quantized
