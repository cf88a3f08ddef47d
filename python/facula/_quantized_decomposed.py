"""``ops.quantized_decomposed``: rounding to integers and back as functions of plain tensors, which the graphs
of the export-based flow contain (:mod:`facula.ao.quantization.quantize_pt2e`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import _C
from ._ops import FunctionOperator
from ._quantized import recordable

Tensor = _C.Tensor
_f = _C.functions

# The limits of the integers that a dtype holds.
_LIMITS = {
    _C.uint8: (0, 2**8 - 1),
    _C.int8: (-(2**7), 2**7 - 1),
    _C.uint16: (0, 2**16 - 1),
    _C.int16: (-(2**15), 2**15 - 1),
    _C.int32: (-(2**31), 2**31 - 1),
}


def _check_limits(name: str, quant_min: int, quant_max: int, dtype: Any) -> None:
    if dtype not in _LIMITS:
        raise ValueError(
            f"quantized_decomposed.{name}: unsupported dtype {dtype}; supported are "
            + ", ".join(map(str, _LIMITS))
        )
    low, high = _LIMITS[dtype]
    if not low <= quant_min <= quant_max <= high:
        raise AssertionError(
            f"quantized_decomposed.{name}: quant_min and quant_max must be ordered limits within {low} and "
            f"{high} of {dtype}, got {quant_min} and {quant_max}"
        )


def _check_float(name: str, x: Tensor) -> None:
    if not x.dtype.is_floating_point:
        raise AssertionError(
            f"quantized_decomposed.{name}: expected an input of a floating-point dtype, got {x.dtype}"
        )


def _check_integers(name: str, x: Tensor, dtype: Any) -> None:
    if x.dtype != dtype:
        raise AssertionError(
            f"quantized_decomposed.{name}: expected an input of dtype {dtype}, got {x.dtype}"
        )


def _single(name: str, what: str, t: Tensor) -> Tensor:
    if t.numel() != 1:
        raise AssertionError(
            f"quantized_decomposed.{name}: {what} must have one element, got shape {tuple(t.shape)}"
        )
    return t.reshape([])


@functools.lru_cache(1024)
def _constants(scale: float, zero_point: int) -> tuple[Tensor, Tensor]:
    return _C.tensor(scale, dtype=_C.float32), _C.tensor(zero_point, dtype=_C.int32)


def _pair(name: str, scale: Any, zero_point: Any) -> tuple[Tensor, Tensor]:
    """Returns scale and zero point as 0-d tensors."""
    if isinstance(scale, Tensor) or isinstance(zero_point, Tensor):
        scale = scale if isinstance(scale, Tensor) else _C.tensor(scale)
        zero_point = zero_point if isinstance(zero_point, Tensor) else _C.tensor(zero_point)
        return _single(name, "scale", scale), _single(name, "zero_point", zero_point)
    return _constants(float(scale), int(zero_point))


def quantize_per_tensor(
    input: Tensor, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any
) -> Tensor:
    """Returns ``input / scale`` rounded to even, plus the zero point, cut to the limits."""
    name = "quantize_per_tensor"
    _check_float(name, input)
    quant_min, quant_max = int(quant_min), int(quant_max)
    _check_limits(name, quant_min, quant_max, dtype)
    return _f._quantize_affine(input, *_pair(name, scale, zero_point), quant_min, quant_max, dtype)


def dequantize_per_tensor(
    input: Tensor,
    scale: Any,
    zero_point: Any,
    quant_min: Any,
    quant_max: Any,
    dtype: Any,
    *,
    out_dtype: Any = None,
) -> Tensor:
    """Returns the numbers that integers stand for."""
    name = "dequantize_per_tensor"
    _check_integers(name, input, dtype)
    return _f._dequantize_affine(input, *_pair(name, scale, zero_point), out_dtype or _C.float32)


def _by_channel(name: str, t: Tensor, axis: int, like: Tensor) -> Tensor:
    if not -like.dim() <= axis < like.dim():
        raise AssertionError(
            f"quantized_decomposed.{name}: axis {axis} is out of range for shape {tuple(like.shape)}"
        )
    sizes = [1] * like.dim()
    sizes[axis] = -1
    return t.reshape(sizes)


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: Any
) -> Tensor:
    """Quantises with a scale and zero point for each index of dimension ``axis``."""
    name = "quantize_per_channel"
    _check_float(name, input)
    _check_limits(name, quant_min, quant_max, dtype)
    scales, zero_points = (_by_channel(name, t, axis, input) for t in (scales, zero_points))
    return _f._quantize_affine(input, scales, zero_points, quant_min, quant_max, dtype)


def dequantize_per_channel(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    *,
    out_dtype: Any = None,
) -> Tensor:
    """Returns the numbers that integers with a scale and zero point for each channel stand for."""
    name = "dequantize_per_channel"
    _check_integers(name, input, dtype)
    if zero_points is None:
        zero_points = _f.zeros_like(scales, dtype=_C.int32)
    scales, zero_points = (_by_channel(name, t, axis, input) for t in (scales, zero_points))
    return _f._dequantize_affine(input, scales, zero_points, out_dtype or _C.float32)


def _range(name: str, input: Tensor, quant_min: int, quant_max: int, dtype: Any) -> tuple[Tensor, Tensor]:
    _check_float(name, input)
    _check_limits(name, quant_min, quant_max, dtype)
    low, high = _f.aminmax(input)
    return low.double().clamp(max=0), high.double().clamp(min=0)


def choose_qparams(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    """Returns the scale and zero point of the range of ``input``, in tensors of one element."""
    low, high = _range("choose_qparams", input, quant_min, quant_max, dtype)
    scale = ((high - low) / float(quant_max - quant_min)).clamp(min=eps)
    zero_point = quant_min - _f.round(low / scale)
    return scale.reshape(1), zero_point.clamp(quant_min, quant_max).to(_C.int64).reshape(1)


def choose_qparams_symmetric(
    input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    """Returns the scale of the largest magnitude of ``input``, and the zero point in the middle."""
    low, high = _range("choose_qparams_symmetric", input, quant_min, quant_max, dtype)
    scale = (_f.maximum(-low, high) / (float(quant_max - quant_min) / 2)).clamp(min=eps)
    middle = (quant_min + quant_max) // 2 if dtype == _C.uint8 else 0
    return scale.reshape(1), _f.full([1], middle, dtype=_C.int64)


def choose_qparams_per_token(input: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """Returns a symmetric scale for each row, and zero points of 0."""
    if dtype != _C.int8:
        raise ValueError(f"quantized_decomposed.choose_qparams_per_token: expected int8, got {dtype}")
    scales = input.abs().amax(-1, keepdim=True)
    scales = (scales.float() if scales.dtype == _C.float16 else scales).clamp(min=1e-5) / 127
    return scales.to(_C.float32), _f.zeros_like(scales, dtype=_C.float32)


def choose_qparams_per_token_asymmetric(input: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
    """Returns the scale and zero point of the range of each row."""
    low, high = _f.aminmax(input.float(), dim=-1, keepdim=True)
    low, high = low.clamp(max=0), high.clamp(min=0)
    scales = ((high - low) / 255.0).clamp(min=2.0**-23)
    from_low, from_high = low / scales, high / scales
    zero_points = _f.where((-128 + from_low) + (127 + from_high) > 0, -128 - from_low, 127 - from_high)
    return scales, _f.round(zero_points.clamp(-128, 127))


def quantize_per_token(
    input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: int, quant_max: int, dtype: Any
) -> Tensor:
    """Quantises rows with a scale and zero point each, of shape ``(..., 1)``."""
    _check_limits("quantize_per_token", quant_min, quant_max, dtype)
    return _f._quantize_affine(input, scales, zero_points, quant_min, quant_max, dtype)


def dequantize_per_token(
    input: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    output_dtype: Any = _C.float32,
) -> Tensor:
    """Returns the numbers that integers with a scale and zero point for each row stand for."""
    return _f._dequantize_affine(input, scales, zero_points, output_dtype)


def fake_quant_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """Rounds to the numbers that integers stand for, with the gradient of the identity within the limits."""
    return _f.fake_quantize_per_channel_affine(
        input, scales.float(), zero_points.to(_C.int32), axis, quant_min, quant_max
    )


def convert_element_type(input: Tensor, dtype: Any) -> Tensor:
    """Returns ``input`` in another dtype."""
    return input.to(dtype)


# The function and the overloads of each name. Calling the name calls its first overload.
_TABLE: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "quantize_per_tensor": (quantize_per_tensor, ("default", "tensor", "tensor2")),
    "dequantize_per_tensor": (dequantize_per_tensor, ("default", "tensor", "tensor2")),
    "quantize_per_channel": (quantize_per_channel, ("default",)),
    "dequantize_per_channel": (dequantize_per_channel, ("default",)),
    "choose_qparams": (choose_qparams, ("tensor",)),
    "choose_qparams_symmetric": (choose_qparams_symmetric, ("tensor",)),
    "choose_qparams_per_token": (choose_qparams_per_token, ("default",)),
    "choose_qparams_per_token_asymmetric": (choose_qparams_per_token_asymmetric, ("default",)),
    "quantize_per_token": (quantize_per_token, ("default",)),
    "dequantize_per_token": (dequantize_per_token, ("default",)),
    "fake_quant_per_channel": (fake_quant_per_channel, ("default",)),
    "convert_element_type": (convert_element_type, ("no_fuse",)),
}


class _Packet:
    """The overloads of a name: ``facula.ops.quantized_decomposed.quantize_per_tensor``."""

    def __init__(self, name: str, function: Callable, overloads: tuple[str, ...]) -> None:
        self.__name__ = name
        self._overloads = overloads
        for overload in overloads:
            setattr(
                self, overload, FunctionOperator("quantized_decomposed", name, overload, recordable(function))
            )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self._overloads[0])(*args, **kwargs)

    def overloads(self) -> list[str]:
        return list(self._overloads)

    def __str__(self) -> str:
        return f"quantized_decomposed.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


@functools.cache
def find(name: str) -> Any:
    """Returns the operator of ``ops.quantized_decomposed`` with this name, None if there is none."""
    return _Packet(name, *_TABLE[name]) if name in _TABLE else None
