"""Dropout: random zeros in training, the identity in evaluation."""

from __future__ import annotations

from ... import _C
from .. import functional as F
from .module import TensorModule

Tensor = _C.Tensor


class _DropoutNd(TensorModule):
    __constants__ = ["p", "inplace"]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, zeroes each element with probability ``p`` and scales the others by 1 / (1 - p).

    Source: Srivastava et al., "Dropout", 2014.

    >>> nn.Dropout(0.2)(facula.randn(20, 16)).shape
    facula.Size([20, 16])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """In training, zeroes channels of ``[N, C, L]`` or ``[C, L]``.  Tompson et al., 2015.

    >>> nn.Dropout1d(0.2)(facula.randn(20, 16, 4)).shape
    facula.Size([20, 16, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """In training, zeroes channels of ``[N, C, H, W]``.  Tompson et al., 2015.

    >>> nn.Dropout2d(0.2)(facula.randn(20, 16, 4, 3)).shape
    facula.Size([20, 16, 4, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """In training, zeroes channels of ``[N, C, D, H, W]``.  Tompson et al., 2015.

    >>> nn.Dropout3d(0.2)(facula.randn(5, 16, 4, 3, 2)).shape
    facula.Size([5, 16, 4, 3, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of the output of selu.  Klambauer et al., 2017.

    >>> nn.AlphaDropout(0.2)(facula.randn(20, 16)).shape
    facula.Size([20, 16])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of entire channels.

    >>> nn.FeatureAlphaDropout(0.2)(facula.randn(20, 16, 4)).shape
    facula.Size([20, 16, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
