"""Functions of quantised tensors, by the names of ``nn.functional``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import _C, _quantized_ops
from ...._quantized import is_quantized
from ...._types import quint8
from ....nn import functional as F

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool2d",
    "avg_pool3d",
    "celu",
    "clamp",
    "conv1d",
    "conv2d",
    "conv3d",
    "elu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "interpolate",
    "leaky_relu",
    "linear",
    "max_pool1d",
    "max_pool2d",
    "threshold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

Tensor = _C.Tensor


def _needs_quantized(name: str) -> Callable:
    """Returns the function of ``nn.functional`` with this name, which takes quantised tensors alone."""
    function = getattr(F, name)

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_quantized(input):
            raise ValueError(f"Input to 'quantized.{name}' must be quantized!")
        return function(input, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    return call


adaptive_avg_pool2d = _needs_quantized("adaptive_avg_pool2d")
adaptive_avg_pool3d = _needs_quantized("adaptive_avg_pool3d")
avg_pool2d = _needs_quantized("avg_pool2d")
avg_pool3d = _needs_quantized("avg_pool3d")
hardsigmoid = _needs_quantized("hardsigmoid")
hardtanh = _needs_quantized("hardtanh")
interpolate = _needs_quantized("interpolate")
max_pool1d = _needs_quantized("max_pool1d")
max_pool2d = _needs_quantized("max_pool2d")
threshold = _needs_quantized("threshold")
upsample = _needs_quantized("upsample")


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Bilinear interpolation with aligned corners."""
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Interpolation by the nearest element."""
    return interpolate(input, size, scale_factor, mode="nearest")


def clamp(input: Any, min_: float, max_: float) -> Any:
    """Limits the numbers of a quantised tensor."""
    return _quantized_ops.clamp(input, min_, max_)


def linear(input: Any, weight: Any, bias: Any = None, scale: Any = None, zero_point: Any = None) -> Any:
    """A linear layer; without ``scale`` the result has that of the input."""
    packed = _quantized_ops.linear_prepack(weight, bias)
    return _quantized_ops.TABLE["linear"](input, packed, *_of(input, scale, zero_point))


def _of(input: Any, scale: Any, zero_point: Any) -> tuple:
    return (
        input.q_scale() if scale is None else scale,
        input.q_zero_point() if zero_point is None else zero_point,
    )


def _conv(rank: int) -> Callable:
    def call(
        input: Any,
        weight: Any,
        bias: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        scale: float = 1.0,
        zero_point: int = 0,
        dtype: Any = quint8,
    ) -> Any:
        """A convolution of quantised input and weight."""
        if padding_mode != "zeros":
            raise NotImplementedError("Only zero-padding is supported!")
        if input.dim() != rank + 2:
            raise ValueError(f"Input shape must have {rank + 2} dimensions, got {tuple(input.shape)}")
        pack = _quantized_ops.TABLE[f"conv{rank}d_prepack"]
        packed = pack(weight, bias, stride, padding, dilation, groups)
        return _quantized_ops.TABLE[f"conv{rank}d"](input, packed, scale, zero_point)

    call.__name__ = call.__qualname__ = f"conv{rank}d"
    return call


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)


def hardswish(input: Any, scale: float, zero_point: int) -> Any:
    """x * relu6(x + 3) / 6."""
    return _quantized_ops.find("hardswish")(input, scale, zero_point)


def elu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    """The exponential linear unit."""
    return _quantized_ops.find("elu")(input, scale, zero_point, alpha)


def celu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> Any:
    """The continuously differentiable exponential linear unit."""
    return _quantized_ops.find("celu")(input, scale, zero_point, alpha)


def leaky_relu(
    input: Any, negative_slope: float = 0.01, inplace: bool = False, scale: Any = None, zero_point: Any = None
) -> Any:
    """The leaky rectifier; without ``scale`` the result has that of the input."""
    scale, zero_point = _of(input, scale, zero_point)
    return _quantized_ops.find("leaky_relu")(input, negative_slope, inplace, scale, zero_point)
