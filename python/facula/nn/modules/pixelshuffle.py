"""Rearrangement between channels and pixels."""

from __future__ import annotations

from ... import _C
from .. import functional as F
from .module import TensorModule

Tensor = _C.Tensor


class PixelShuffle(TensorModule):
    """``[*, C r^2, H, W]`` to ``[*, C, H r, W r]``.  Shi et al., 2016.

    >>> nn.PixelShuffle(3)(facula.randn(1, 9, 4, 4)).shape
    facula.Size([1, 1, 12, 12])
    """

    __constants__ = ["upscale_factor"]

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(TensorModule):
    """``[*, C, H r, W r]`` to ``[*, C r^2, H, W]``: the inverse of PixelShuffle.

    >>> nn.PixelUnshuffle(2)(facula.randn(1, 1, 4, 4)).shape
    facula.Size([1, 4, 2, 2])
    """

    __constants__ = ["downscale_factor"]

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"
