"""Instance normalisation."""

from __future__ import annotations

from typing import Any

from ... import _C
from .. import functional as F
from .batchnorm import _LazyNormBase, _NormBase

Tensor = _C.Tensor


class _InstanceNorm(_NormBase):
    _rank: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (self._rank, self._rank - 1):
            raise ValueError(f"expected {self._rank - 1}D or {self._rank}D input (got {input.dim()}D input)")

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = input.dim() == self._rank - 1
        channels = input.shape[0 if single else 1]
        if channels != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={0 if single else 1} to match num_features "
                    f"({self.num_features}), but got: {channels}."
                )
            import warnings

            warnings.warn(
                f"input's size at dim={0 if single else 1} does not match num_features. "
                "You can silence this warning by not passing in num_features, which is not used because "
                "affine=False",
                stacklevel=2,
            )
        if single:
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each sample of ``[N, C, L]`` or ``[C, L]``.  Ulyanov et al., 2016."""

    _rank = 3


class InstanceNorm2d(_InstanceNorm):
    """Normalises each channel of each sample of ``[N, C, H, W]`` or ``[C, H, W]``.  Ulyanov et al., 2016.

    >>> nn.InstanceNorm2d(3, affine=True)(facula.randn(2, 3, 4, 4)).shape
    facula.Size([2, 3, 4, 4])
    """

    _rank = 4


class InstanceNorm3d(_InstanceNorm):
    """Normalises each channel of each sample of ``[N, C, D, H, W]`` or ``[C, D, H, W]``.  Ulyanov et al.,
    2016.
    """

    _rank = 5


class _LazyInstanceNorm(_LazyNormBase):
    def _size_in(self: Any, input: Tensor) -> int:
        self._check_input_dim(input)
        return input.shape[0 if input.dim() == self._rank - 1 else 1]


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """InstanceNorm1d whose ``num_features`` is inferred from the first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """InstanceNorm2d whose ``num_features`` is inferred from the first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """InstanceNorm3d whose ``num_features`` is inferred from the first input."""

    cls_to_become = InstanceNorm3d
