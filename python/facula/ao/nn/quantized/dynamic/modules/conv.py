"""Convolutions whose inputs are quantised with the range of each call."""

from __future__ import annotations

from typing import Any

from ...... import _quantized_ops
from ... import modules as nnq

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Dynamic:
    """The base of the classes: the forward pass takes and gives float32."""

    def forward(self, input: Any, reduce_range: bool = True) -> Any:
        m: Any = self
        op = _quantized_ops.TABLE[f"{m._kind()}_dynamic"]
        return op(m._padded(input), m._packed_params, reduce_range)

    def _get_name(self) -> str:
        return "DynamicQuantized" + type(self).__name__


class Conv1d(_Dynamic, nnq.Conv1d):
    """A convolution over one dimension."""


class Conv2d(_Dynamic, nnq.Conv2d):
    """A convolution over two dimensions."""


class Conv3d(_Dynamic, nnq.Conv3d):
    """A convolution over three dimensions."""


class ConvTranspose1d(_Dynamic, nnq.ConvTranspose1d):
    """A transposed convolution over one dimension."""


class ConvTranspose2d(_Dynamic, nnq.ConvTranspose2d):
    """A transposed convolution over two dimensions."""


class ConvTranspose3d(_Dynamic, nnq.ConvTranspose3d):
    """A transposed convolution over three dimensions."""
