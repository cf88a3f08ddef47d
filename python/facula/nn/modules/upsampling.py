"""Resampling of images."""

from __future__ import annotations

from typing import Any

from ... import _C
from .. import functional as F
from .module import TensorModule

Tensor = _C.Tensor


class Upsample(TensorModule):
    """Interpolates ``[N, C, ...]`` to ``size``, or to ``scale_factor`` times its size; the modes are
    those of ``F.interpolate``.

    >>> nn.Upsample(scale_factor=2)(facula.arange(1.0, 3.0).view(1, 1, 1, 2))
    tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.]]]])
    """

    __constants__ = ["size", "scale_factor", "mode", "align_corners", "name", "recompute_scale_factor"]

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name, self.size = type(self).__name__, size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(f) for f in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"recompute_scale_factor": True, **state})

    def extra_repr(self) -> str:
        how = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{how}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample of ``[N, C, H, W]`` in mode 'nearest'.

    >>> nn.UpsamplingNearest2d(scale_factor=2)(facula.randn(1, 1, 2, 2)).shape
    facula.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample of ``[N, C, H, W]`` in mode 'bilinear' with ``align_corners``.

    >>> nn.UpsamplingBilinear2d(scale_factor=2)(facula.randn(1, 1, 2, 2)).shape
    facula.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
