"""Fake quantisation: modules that round values as quantised numbers are rounded, in floating point, while
a model is trained.
"""

from __future__ import annotations

import functools
from typing import Any

from ... import _C, _qscheme
from ..._ops import ops
from ..._types import qint8, quint4x2, quint8
from ...nn import Module
from .observer import (
    PER_CHANNEL,
    FixedQParamsObserver,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    _with_args,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    limits_of,
)

__all__ = [
    "FakeQuantize",
    "FakeQuantizeBase",
    "FixedQParamsFakeQuantize",
    "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant",
    "default_dynamic_fake_quant",
    "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit",
    "default_fake_quant",
    "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant",
    "default_fused_act_fake_quant",
    "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant",
    "default_histogram_fake_quant",
    "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant",
    "default_weight_fake_quant",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]

Tensor = _C.Tensor
_f = _C.functions


class FakeQuantizeBase(Module):
    """The base of modules that observe a range and round to it; both can be switched off."""

    with_args = classmethod(_with_args)
    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", _C.tensor([1], dtype=_C.uint8))
        self.register_buffer("observer_enabled", _C.tensor([1], dtype=_C.uint8))

    def calculate_qparams(self, **options: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no calculate_qparams")

    def enable_fake_quant(self, enabled: bool = True) -> None:
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self) -> None:
        self.enable_observer(False)


class FakeQuantize(FakeQuantizeBase):
    """Records the limits of its inputs, and rounds the inputs to the steps between the limits.

    The gradient is that of the identity within the range, and zero where the input was cut to it.

    Args:
        observer: the observer's class, or a constructor from ``with_args``.
        quant_min, quant_max: the limits of the integers.
        is_dynamic: whether the range is that of each input.
        observer_kwargs: further arguments of the observer.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        if quant_min is not None and quant_max is not None:
            dtype = getattr(getattr(observer, "p", None), "keywords", {}).get(
                "dtype", observer_kwargs.get("dtype", quint8)
            )
            _check_limits(quant_min, quant_max, dtype)
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        self.activation_post_process = inner = observer(**observer_kwargs, is_dynamic=is_dynamic)
        self.quant_min, self.quant_max = inner.quant_min, inner.quant_max
        self.is_dynamic, self.dtype, self.qscheme = inner.is_dynamic, inner.dtype, inner.qscheme
        self.ch_axis = getattr(inner, "ch_axis", -1)
        self.is_per_channel = inner.qscheme in PER_CHANNEL
        floating = inner.qscheme is _qscheme.per_channel_affine_float_qparams
        self.register_buffer("scale", _C.tensor([1.0], dtype=_C.float32))
        self.register_buffer("zero_point", _C.tensor([0], dtype=_C.float32 if floating else _C.int32))

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        """Returns the scales and zero points for what has been observed."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        if self.observer_enabled[0] == 1:
            self.activation_post_process(X.detach())
            scale, zero_point = self.calculate_qparams()
            if self.scale.shape != scale.shape:
                self.scale.resize_(scale.shape)
                self.zero_point.resize_(zero_point.shape)
            self.scale.copy_(scale)
            self.zero_point.copy_(zero_point)
        return self._rounded(X) if self.fake_quant_enabled[0] == 1 else X

    def _rounded(self, x: Tensor) -> Tensor:
        limits = self.activation_post_process.quant_min, self.activation_post_process.quant_max
        if self.is_per_channel:
            return _f.fake_quantize_per_channel_affine(x, self.scale, self.zero_point, self.ch_axis, *limits)
        return _f.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, *limits)

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"quant_min={self.quant_min}, quant_max={self.quant_max}, dtype={self.dtype}, "
            f"qscheme={self.qscheme}, ch_axis={self.ch_axis}, scale={self.scale}, "
            f"zero_point={self.zero_point}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("scale", "zero_point"):  # one element until a first input has told the channels
            if (value := state_dict.get(prefix + name)) is not None:
                getattr(self, name).resize_(value.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _check_limits(low: int, high: int, dtype: Any) -> None:
    held = limits_of(dtype)
    if low > high:
        raise AssertionError(f"quant_min {low} must be less than or equal to quant_max {high}")
    if held and low < held[0]:
        raise AssertionError(f"quant_min out of bound: {low} is below {held[0]} of {dtype}")
    if held and high > held[1]:
        raise AssertionError(f"quant_max out of bound: {high} is above {held[1]} of {dtype}")


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds to steps of a fixed scale and zero point."""

    def __init__(self, observer: Any) -> None:
        super().__init__(observer=observer)
        if type(self.activation_post_process) is not FixedQParamsObserver:
            raise AssertionError(
                f"{type(self).__name__}'s observer must be a FixedQParamsObserver, got "
                f"{type(self.activation_post_process).__name__}"
            )
        self.scale = self.activation_post_process.scale
        self.zero_point = self.activation_post_process.zero_point

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point


def _chosen(low: Tensor, high: Tensor, qmin: int, qmax: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Returns scales and zero points for ranges by FBGEMM's rule, as float32 and int32.

    A symmetric range that has both signs fits the smaller half of the integers too: its scale is the larger
    of -low / 128 and high / 127, not that of the half range.
    """
    low, high = low.double(), high.double()
    half = (qmax - qmin) // 2
    both = (low < 0) & (high > 0) if symmetric else _f.zeros_like(low, dtype=_C.bool)
    largest = _f.maximum((low / -(half + 1)).abs(), (high / half).abs())
    low = _f.where(both, largest * -(half + 1), low.clamp(max=0))
    high = _f.where(both, largest * half, high.clamp(min=0))
    scale = (high - low) / (qmax - qmin)
    single = scale.float()
    scale = _f.where((single == 0) | _f.isinf(1 / single), 0.1, scale)
    smallest = 6.1e-5
    factor = (smallest / scale).clamp(min=1.0)
    scale, low, high = scale.clamp(min=smallest), low * factor, high * factor
    from_low, from_high = qmin - low / scale, qmax - high / scale
    lower = abs(qmin) + (low / scale).abs() < abs(qmax) + (high / scale).abs()
    start = _f.where(both, (qmin + qmax) / 2, _f.where(lower, from_low, from_high))
    return scale.float(), start.clamp(qmin, qmax).round().to(_C.int32)


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """FakeQuantize with an observer of moving averages, whose scale is computed by FBGEMM's rule."""

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, is_dynamic, **observer_kwargs)
        allowed = (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
        if not isinstance(self.activation_post_process, allowed):
            raise AssertionError(
                "Fused observer+fake_quant module only works with MovingAverageMinMaxObserver, got "
                f"{type(self.activation_post_process).__name__}"
            )

    def forward(self, X: Tensor) -> Tensor:
        inner = self.activation_post_process
        observes, rounds = bool(self.observer_enabled), bool(self.fake_quant_enabled)
        if observes and rounds and self._is_settled(X):
            return self._step(X)
        if observes:
            inner(X.detach())
            ranges = inner.min_val.reshape(-1), inner.max_val.reshape(-1)
            scale, zero_point = _chosen(*ranges, inner.quant_min, inner.quant_max, self._is_symmetric())
            if self.scale.shape != scale.shape:
                self.scale.resize_(scale.shape)
                self.zero_point.resize_(zero_point.shape)
            self.scale.copy_(scale)
            self.zero_point.copy_(zero_point)
        return self._rounded(X) if rounds else X

    def _is_symmetric(self) -> bool:
        return self.qscheme in (_qscheme.per_tensor_symmetric, _qscheme.per_channel_symmetric)

    def _is_settled(self, x: Tensor) -> bool:
        """Returns whether the buffers have their sizes, and one program may observe and round ``x``."""
        inner = self.activation_post_process
        exact = type(inner) in (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
        counts = inner.min_val.numel() == self.scale.numel() > 0 and self.zero_point.dtype == _C.int32
        return exact and counts and x.dtype == _C.float32 and x.numel() > 0 and not _C.is_tracing()

    def _step(self, x: Tensor) -> Tensor:
        """Updates the range and the scale, and returns the rounded values, by one program."""
        inner = self.activation_post_process
        options = (
            inner.averaging_constant,
            inner.quant_min,
            inner.quant_max,
            self._is_symmetric(),
            self.ch_axis if self.is_per_channel else None,
        )
        buffers = (inner.min_val, inner.max_val, self.scale, self.zero_point)
        of_bounds = tuple(inner.min_val.shape)
        return _step_program(options, x.shape, x.stride(), of_bounds)(x, *buffers)


def _observed_and_rounded(
    options: tuple, x: Tensor, min_val: Tensor, max_val: Tensor, scale: Tensor, zero_point: Tensor
) -> Tensor:
    constant, low, high, symmetric, axis = options
    values = x.detach()
    if axis is None:
        limits = _f.aminmax(values)
    else:
        limits = _f.aminmax(values.transpose(0, axis).flatten(1), dim=1)
    for bound, new in zip((min_val, max_val), limits):
        average = bound + constant * (new - bound)
        bound.copy_(_f.where(_f.isinf(bound), new, average))
    chosen = _chosen(min_val.reshape(-1), max_val.reshape(-1), low, high, symmetric)
    scale.copy_(chosen[0])
    zero_point.copy_(chosen[1])
    aten = ops.aten
    if axis is None:
        enabled = _f.ones([1], dtype=_C.uint8)
        rounding = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        return rounding(x, chosen[0], chosen[1], enabled, low, high)[0]
    return aten.fake_quantize_per_channel_affine_cachemask(x, chosen[0], chosen[1], axis, low, high)[0]


@functools.lru_cache(1024)
def _step_program(options: tuple, sizes: tuple, strides: tuple, of_bounds: tuple) -> Any:
    """Returns the program of ``_observed_and_rounded`` for values of this layout."""
    from ...program import trace

    x = _f.empty_strided(sizes, strides).requires_grad_()
    count = max(_f.empty(of_bounds).numel(), 1)
    bounds = [_f.empty(of_bounds) for _ in range(2)]
    buffers = [_f.empty([count]), _f.empty([count], dtype=_C.int32)]
    return trace(functools.partial(_observed_and_rounded, options), x, *bounds, *buffers)


def disable_fake_quant(mod: Module) -> None:
    """Switches rounding off; for ``model.apply``."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod: Module) -> None:
    """Switches rounding on; for ``model.apply``."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


def disable_observer(mod: Module) -> None:
    """Stops recording ranges; for ``model.apply``."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod: Module) -> None:
    """Records ranges again; for ``model.apply``."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()


_WEIGHT: dict[str, Any] = {"quant_min": -128, "quant_max": 127, "dtype": qint8}
_PER_TENSOR = {**_WEIGHT, "qscheme": _qscheme.per_tensor_symmetric, "observer": MovingAverageMinMaxObserver}
_PER_CHANNEL = {
    **_WEIGHT,
    "qscheme": _qscheme.per_channel_symmetric,
    "observer": MovingAveragePerChannelMinMaxObserver,
}
_ACTIVATION: dict[str, Any] = {"quant_min": 0, "quant_max": 255, "dtype": quint8}
_NARROW: dict[str, Any] = {"quant_min": -127, "quant_max": 127, "eps": 2**-12}
_ROWS: dict[str, Any] = {
    "observer": MovingAveragePerChannelMinMaxObserver,
    "qscheme": _qscheme.per_channel_affine_float_qparams,
    "ch_axis": 0,
    "averaging_constant": 1,
}

default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    **_ACTIVATION,
    qscheme=_qscheme.per_tensor_affine,
    reduce_range=True,
)
default_weight_fake_quant = FakeQuantize.with_args(**_PER_TENSOR, reduce_range=False)
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_ACTIVATION, is_dynamic=True, averaging_constant=1
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(**_PER_CHANNEL, reduce_range=False, ch_axis=0)
default_embedding_fake_quant = FakeQuantize.with_args(**_ROWS, **_ACTIVATION)
default_embedding_fake_quant_4bit = FakeQuantize.with_args(**_ROWS, dtype=quint4x2)
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver, **_ACTIVATION, qscheme=_qscheme.per_tensor_affine, reduce_range=True
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_ACTIVATION
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_PER_TENSOR)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_PER_CHANNEL)
fused_wt_fake_quant_range_neg_127_to_127 = default_fused_wt_fake_quant.with_args(**_NARROW)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = default_fused_per_channel_wt_fake_quant.with_args(
    **_NARROW
)
