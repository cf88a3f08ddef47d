"""Modules of quantised models: what floating models use of them."""

from . import quantized as quantized
