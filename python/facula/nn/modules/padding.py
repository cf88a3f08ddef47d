"""Padding of one to three dimensions: {Constant, Zero, Reflection, Replication, Circular}Pad{1, 2, 3}d."""

from __future__ import annotations

from typing import Any

from ... import _C
from .. import functional as F
from .module import TensorModule
from .utils import _ntuple

Tensor = _C.Tensor


class _Pad(TensorModule):
    _rank: int
    _mode: str
    __constants__ = ["padding"]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._rank)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    _mode = "constant"
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with ``value``; ``padding`` = (left, right) or one number."""

    _rank = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with ``value``; ``padding`` = (left, right, top, bottom) or one number.

    >>> nn.ConstantPad2d(2, 3.5)(facula.randn(1, 2, 2)).shape
    facula.Size([1, 6, 6])
    """

    _rank = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with ``value``."""

    _rank = 3


class ZeroPad1d(_ZeroPad):
    """Pads the last dimension with zeros."""

    _rank = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two dimensions with zeros."""

    _rank = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three dimensions with zeros."""

    _rank = 3


class _ReflectionPadNd(_Pad):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Continues the last dimension by its reflection at the edge."""

    _rank = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Continues the last two dimensions by their reflection at the edges."""

    _rank = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Continues the last three dimensions by their reflection at the edges."""

    _rank = 3


class _ReplicationPadNd(_Pad):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Repeats the edge of the last dimension."""

    _rank = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Repeats the edges of the last two dimensions."""

    _rank = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Repeats the edges of the last three dimensions."""

    _rank = 3


class _CircularPadNd(_Pad):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        low, high = self._rank + 1, self._rank + 2
        if input.dim() not in (low, high):
            raise ValueError(f"expected {low}D or {high}D input (got {input.dim()}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Continues the last dimension periodically."""

    _rank = 1


class CircularPad2d(_CircularPadNd):
    """Continues the last two dimensions periodically."""

    _rank = 2


class CircularPad3d(_CircularPadNd):
    """Continues the last three dimensions periodically."""

    _rank = 3
