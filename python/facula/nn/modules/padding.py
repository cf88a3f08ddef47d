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


class _ConstantPad(_Pad):
    _mode = "constant"
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """Pads the last dimension with ``value``; ``padding`` = (left, right) or one number."""

    _rank = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two dimensions with ``value``; ``padding`` = (left, right, top, bottom) or one number.

    >>> nn.ConstantPad2d(2, 3.5)(facula.randn(1, 2, 2)).shape
    facula.Size([1, 6, 6])
    """

    _rank = 2


class ConstantPad3d(_ConstantPad):
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


class ReflectionPad1d(_Pad):
    """Continues the last dimension by its reflection at the edge."""

    _rank, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Continues the last two dimensions by their reflection at the edges."""

    _rank, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Continues the last three dimensions by their reflection at the edges."""

    _rank, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Repeats the edge of the last dimension."""

    _rank, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Repeats the edges of the last two dimensions."""

    _rank, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Repeats the edges of the last three dimensions."""

    _rank, _mode = 3, "replicate"


class _CircularPad(_Pad):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        low, high = self._rank + 1, self._rank + 2
        if input.dim() not in (low, high):
            raise ValueError(f"expected {low}D or {high}D input (got {input.dim()}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPad):
    """Continues the last dimension periodically."""

    _rank = 1


class CircularPad2d(_CircularPad):
    """Continues the last two dimensions periodically."""

    _rank = 2


class CircularPad3d(_CircularPad):
    """Continues the last three dimensions periodically."""

    _rank = 3
