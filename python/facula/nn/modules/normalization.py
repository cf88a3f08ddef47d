"""Normalisation by layer, root mean square, group and neighbouring channels."""

from __future__ import annotations

from typing import Any

from ... import _C
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import TensorModule

Tensor = _C.Tensor
_empty = _C.functions.empty


class _Scaled(TensorModule):
    """A weight, and optionally a bias, with initial values one and zero."""

    def _add_scale(self, sizes: list[int], weight: bool, bias: bool, dtype: Any, device: Any) -> None:
        for name, present in (("weight", weight), ("bias", bias)):
            p = Parameter(_empty(sizes, dtype=dtype, device=device)) if present else None
            self.register_parameter(name, p)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if getattr(self, "bias", None) is not None:
            init.zeros_(self.bias)


class LayerNorm(_Scaled):
    """Normalises the last ``len(normalized_shape)`` dimensions.

    Shape: ``(*, *normalized_shape)`` in and out.
    Source: Ba, Kiros, Hinton, "Layer Normalization", 2016.

    >>> nn.LayerNorm([5, 10])(facula.randn(20, 5, 10)).shape
    facula.Size([20, 5, 10])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (
            (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        )
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._add_scale(
            list(self.normalized_shape), elementwise_affine, elementwise_affine and bias, dtype, device
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(_Scaled):
    """Divides the last ``len(normalized_shape)`` dimensions by their root mean square.

    Shape: ``(*, *normalized_shape)`` in and out.
    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.

    >>> nn.RMSNorm([2])(facula.tensor([[3.0, 4.0]]))
    tensor([[0.8485, 1.1314]], grad_fn=<MulBackward0>)
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (
            (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        )
        self.eps, self.elementwise_affine = eps, elementwise_affine
        w = Parameter(_empty(list(self.normalized_shape), dtype=dtype, device=device))
        self.register_parameter("weight", w if elementwise_affine else None)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Scaled):
    """Normalises each of ``num_groups`` groups of channels.

    Shape: ``[N, num_channels, *]`` in and out.
    Source: Wu, He, "Group Normalization", 2018.

    >>> nn.GroupNorm(3, 6)(facula.randn(20, 6, 10, 10)).shape
    facula.Size([20, 6, 10, 10])
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._add_scale([num_channels], affine, affine and bias, dtype, device)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(TensorModule):
    """Divides by a power of the mean of squares over neighbouring channels.  Krizhevsky et al., 2012."""

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm of images ``[N, C, H, W]`` under its older name.

    >>> nn.CrossMapLRN2d(2)(facula.randn(2, 4, 3, 3)).shape
    facula.Size([2, 4, 3, 3])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        return super().forward(input)
