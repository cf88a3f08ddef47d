"""Linear layers with a rectifier whose inputs are quantised with the range of each call."""

from __future__ import annotations

from .....quantized.dynamic import modules as nnqd
from .... import modules as nni

__all__ = ["LinearReLU"]


class LinearReLU(nnqd.Linear):
    """A linear layer and a rectifier."""

    _FLOAT_MODULE = (nni.LinearReLU,)
    _relu = "_relu"

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU"
