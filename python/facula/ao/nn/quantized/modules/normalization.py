"""Quantised normalisations."""

from __future__ import annotations

from typing import Any

from ..... import _quantized_ops, nn
from .activation import _Scaled
from .utils import output_parameters

__all__ = ["GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm"]


class _Norm(_Scaled):
    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return cls.from_reference(mod, *output_parameters(mod))

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        first, *rest = cls._arguments
        return cls(
            getattr(mod, first),
            mod.weight,
            mod.bias,
            float(scale),
            int(zero_point),
            *(getattr(mod, name) for name in rest),
        )  # type: ignore[call-arg]


class LayerNorm(_Norm, nn.LayerNorm):
    """Layer normalisation of a quantised tensor."""

    _arguments = ("normalized_shape", "eps", "elementwise_affine")

    def __init__(
        self,
        normalized_shape: Any,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)
        self.weight, self.bias = weight, bias
        self._set(scale, zero_point)

    def forward(self, input: Any) -> Any:
        return _quantized_ops.find("layer_norm")(
            input,
            self.normalized_shape,
            self.weight,
            self.bias,
            self.eps,
            float(self.scale),
            int(self.zero_point),
        )


class GroupNorm(_Norm, nn.GroupNorm):
    """Group normalisation of a quantised tensor."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine)
        self.weight, self.bias = weight, bias
        self._set(scale, zero_point)

    def forward(self, input: Any) -> Any:
        return _quantized_ops.find("group_norm")(
            input, self.num_groups, self.weight, self.bias, self.eps, float(self.scale), int(self.zero_point)
        )

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(
            mod.num_groups, mod.num_channels, mod.weight, mod.bias, scale, zero_point, mod.eps, mod.affine
        )


class _InstanceNorm(_Norm):
    _arguments = ("num_features", "eps", "momentum", "affine", "track_running_stats")

    def __init__(
        self,
        num_features: int,
        weight: Any,
        bias: Any,
        scale: float,
        zero_point: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)  # type: ignore[call-arg]
        self.weight, self.bias = weight, bias
        self._set(scale, zero_point)

    def forward(self, input: Any) -> Any:
        return _quantized_ops.find("instance_norm")(
            input,
            self.weight,
            self.bias,
            self.eps,
            float(self.scale),
            int(self.zero_point),  # type: ignore[attr-defined]
        )


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """Instance normalisation of a quantised tensor with one spatial dimension."""


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """Instance normalisation of a quantised tensor with two spatial dimensions."""


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """Instance normalisation of a quantised tensor with three spatial dimensions."""
