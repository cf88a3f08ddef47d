"""Windows of images as columns, and back."""

from __future__ import annotations

from typing import Any

from ... import _C
from .. import functional as F
from .module import TensorModule

Tensor = _C.Tensor


class _Windows(TensorModule):
    def __init__(self, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.__constants__)


class Fold(_Windows):
    """Sums columns ``[N, C * kh * kw, windows]`` at the positions of their windows in ``[N, C,
    *output_size]``.

    >>> nn.Fold(output_size=(4, 5), kernel_size=(2, 2))(facula.randn(1, 3 * 2 * 2, 12)).shape
    facula.Size([1, 3, 4, 5])
    """

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class Unfold(_Windows):
    """The windows of ``[N, C, H, W]`` as columns ``[N, C * kh * kw, windows]``.

    >>> nn.Unfold(kernel_size=(2, 3))(facula.randn(2, 5, 3, 4)).shape
    facula.Size([2, 30, 4])
    """

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__(kernel_size, dilation, padding, stride)

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
