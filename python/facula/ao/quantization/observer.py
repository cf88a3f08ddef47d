"""Observers: modules that record the range of the values that pass, and compute scales and zero points."""

from __future__ import annotations

import functools
import warnings
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ... import _C, _qscheme
from ..._quantized import INTEGERS
from ..._types import qint8, quint4x2, quint8
from ...nn import Module
from .granularity import Granularity as Granularity
from .granularity import MappingType as MappingType
from .granularity import PerAxis as PerAxis
from .granularity import PerBlock as PerBlock
from .granularity import PerGroup as PerGroup
from .granularity import PerRow as PerRow
from .granularity import PerTensor as PerTensor
from .granularity import PerToken as PerToken
from .granularity import TorchAODType as TorchAODType
from .granularity import ZeroPointDomain as ZeroPointDomain
from .granularity import get_block_size as get_block_size

__all__ = [
    "AffineQuantizedObserverBase",
    "FixedQParamsObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "RecordingObserver",
    "ReuseInputObserver",
    "UniformQuantizationObserverBase",
    "default_affine_fixed_qparams_observer",
    "default_debug_observer",
    "default_dynamic_quant_observer",
    "default_fixed_qparams_range_0to1_observer",
    "default_fixed_qparams_range_neg1to1_observer",
    "default_float_qparams_observer",
    "default_float_qparams_observer_4bit",
    "default_histogram_observer",
    "default_observer",
    "default_per_channel_weight_observer",
    "default_placeholder_observer",
    "default_reuse_input_observer",
    "default_symmetric_fixed_qparams_observer",
    "default_weight_observer",
    "get_observer_state_dict",
    "load_observer_state_dict",
    "per_channel_weight_observer_range_neg_127_to_127",
    "weight_observer_range_neg_127_to_127",
]

Tensor = _C.Tensor
_f = _C.functions
_EPS = 2.0**-23
_FLOAT_ZEROS = _qscheme.per_channel_affine_float_qparams
_SYMMETRIC = (_qscheme.per_tensor_symmetric, _qscheme.per_channel_symmetric)
PER_TENSOR = (_qscheme.per_tensor_affine, _qscheme.per_tensor_symmetric)
PER_CHANNEL = (_qscheme.per_channel_affine, _qscheme.per_channel_symmetric, _FLOAT_ZEROS)

# The limits of integers that observers may be asked for by a plain dtype.
_PLAIN_LIMITS = {
    _C.int8: (-128, 127),
    _C.uint8: (0, 255),
    _C.int16: (-(2**15), 2**15 - 1),
    _C.uint16: (0, 2**16 - 1),
    _C.int32: (-(2**31), 2**31 - 1),
}


def limits_of(dtype: Any) -> tuple[int, int] | None:
    """Returns the smallest and largest integer of a dtype; None if it is not one of integers."""
    held = INTEGERS.get(dtype)
    return (held.low, held.high) if held else _PLAIN_LIMITS.get(dtype)


class _PartialWrapper:
    """A constructor with some arguments set; ``with_args`` sets more."""

    def __init__(self, p: functools.partial) -> None:
        self.p = p
        self.callable_args: dict[str, Callable[[], Any]] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        late = {k: f() for k, f in self.callable_args.items() if k not in keywords}
        return self.p(*args, **keywords, **late)

    def __repr__(self) -> str:
        return repr(self.p) + repr(self.callable_args)

    def with_args(self, **keywords: Any) -> _PartialWrapper:
        wrapper = _PartialWrapper(functools.partial(self.p, **keywords))
        wrapper.callable_args = {**self.callable_args}
        return wrapper

    def with_callable_args(self, **functions: Any) -> _PartialWrapper:
        wrapper = _PartialWrapper(self.p)
        wrapper.callable_args = {**self.callable_args, **functions}
        return wrapper


def _with_args(cls: Any, **keywords: Any) -> _PartialWrapper:
    """Returns a constructor with these arguments set, as configurations take them."""
    return _PartialWrapper(functools.partial(cls)).with_args(**keywords)


def _with_callable_args(cls: Any, **functions: Any) -> _PartialWrapper:
    """Returns a constructor with arguments that functions compute at each call."""
    return _PartialWrapper(functools.partial(cls)).with_callable_args(**functions)


class ObserverBase(Module):
    """The base of observers: a module that returns its input, with a dtype for the quantised values."""

    with_args = classmethod(_with_args)
    with_callable_args = classmethod(_with_callable_args)

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    def forward(self, x: Any) -> Any:
        return x

    def calculate_qparams(self, **options: Any) -> Any:
        raise RuntimeError(f"calculate_qparams should not be called for {type(self).__name__}")


class AffineQuantizedObserverBase(ObserverBase):
    """The base of users' observers that compute scales in a way of their own."""


class UniformQuantizationObserverBase(ObserverBase):
    """The base of observers of a range.

    Args:
        dtype: the quantised dtype.
        qscheme: per tensor or per channel, affine or symmetric.
        reduce_range: whether one bit of the dtype stays unused, for processors that sum in 16 bits.
        quant_min, quant_max: limits of the integers that replace those of the dtype.
        eps: the smallest scale.
    """

    _version = 3
    eps: Tensor
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        dtype: Any = quint8,
        qscheme: Any = _qscheme.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        name = type(self).__name__
        if qscheme not in (*PER_TENSOR, *PER_CHANNEL):
            raise NotImplementedError(f"{name}: unknown qscheme {qscheme}")
        limits = limits_of(dtype)
        if limits is None:
            raise AssertionError(f"{name}: expected an integer dtype such as quint8 or qint8, got {dtype}")
        if qscheme in _SYMMETRIC and reduce_range and dtype is quint8:
            raise NotImplementedError(f"{name}: Cannot reduce range for symmetric quantization for quint8")
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        low, high = limits
        if quant_min is not None and quant_max is not None:
            if not quant_min <= 0 <= quant_max:
                raise AssertionError("User-specified quantization range must include 0.")
            if quant_min >= quant_max:
                raise AssertionError("quant_min must be less than quant_max")
            low, high = quant_min, quant_max
            reduced = reduce_range and high - low + 1 > 128
        else:
            reduced = reduce_range and dtype in (qint8, quint8, _C.int8, _C.uint8)
        self.quant_min, self.quant_max = (low // 2, high // 2) if reduced else (low, high)
        self.register_buffer("eps", _C.tensor([eps], dtype=_C.float32))

    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        """Returns scales and zero points for ranges."""
        if not _valid(min_val, max_val):
            return _C.tensor([1.0]), _C.tensor([0])
        low, high = self.quant_min, self.quant_max
        negative, positive = min_val.clamp(max=0), max_val.clamp(min=0)
        zero_point = _f.zeros(negative.shape, dtype=_C.int32)
        if self.qscheme in _SYMMETRIC:
            largest = _f.maximum(-negative, positive)
            scale = _f.maximum(largest / ((high - low) / 2), self.eps)
            if self.dtype in (quint8, _C.uint8):
                zero_point = zero_point + ((low + high) // 2 if self.has_customized_qrange else 128)
        elif self.qscheme is _FLOAT_ZEROS:
            scale = (max_val - min_val) / float(high - low)
            scale = _f.where(scale > self.eps, scale, _f.ones_like(scale))
            zero_point = -min_val / scale
        else:
            scale = _f.maximum((positive - negative) / float(high - low), self.eps)
            zero_point = (low - _f.round(negative / scale).to(_C.int32)).clamp(low, high)
        return scale.reshape(-1), zero_point.reshape(-1)

    def reset_min_max_vals(self) -> None:
        raise NotImplementedError("Cannot reset min/max values in the given observer.")

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("min_val", "max_val"):  # they get their size from the first values
            if name in self._buffers and (value := state_dict.get(prefix + name)) is not None:
                getattr(self, name).resize_(value.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Returns whether the ranges have been observed. Raises AssertionError for a range that is none."""
    unseen = min_val.numel() == 0 or (
        min_val.numel() == 1 and float(min_val) == float("inf") and float(max_val) == -float("inf")
    )
    if unseen:
        warnings.warn(
            "must run observer before calling calculate_qparams. Returning default values.", stacklevel=4
        )
        return False
    if not bool((min_val <= max_val).all()):
        raise AssertionError(f"min {min_val} should be less than max {max_val}")
    return True


def check_activation(post: Any) -> None:
    """Raises ValueError for an observer of activations that has several scales."""
    post = getattr(post, "activation_post_process", post)
    if getattr(post, "qscheme", None) in PER_CHANNEL:
        raise ValueError(
            f"activations have one scale, and {type(post).__name__} of the qconfig has one for each channel"
            "\n  hint: a MinMaxObserver or HistogramObserver as the qconfig's activation has one"
        )


class MinMaxObserver(UniformQuantizationObserverBase):
    """Records the smallest and largest value.

    >>> observer = facula.ao.quantization.MinMaxObserver()
    >>> _ = observer(facula.tensor([-1.0, 0.0, 2.0]))
    >>> observer.min_val.item(), observer.max_val.item()
    (-1.0, 2.0)
    """

    def __init__(
        self,
        dtype: Any = quint8,
        qscheme: Any = _qscheme.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
        **options: Any,
    ) -> None:
        if qscheme not in PER_TENSOR:
            raise NotImplementedError(
                f"{type(self).__name__}'s qscheme only support torch.per_tensor_symmetric and "
                f"torch.per_tensor_affine, got {qscheme}"
            )
        super().__init__(
            dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **options
        )
        self.register_buffer("min_val", _C.tensor(float("inf")))
        self.register_buffer("max_val", _C.tensor(float("-inf")))

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            low, high = _f.aminmax(x_orig.detach().to(self.min_val.dtype))
            self._merge(low, high)
        return x_orig

    def _merge(self, low: Tensor, high: Tensor) -> None:
        self.min_val.copy_(_f.minimum(low, self.min_val))
        self.max_val.copy_(_f.maximum(high, self.max_val))

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        """Returns the scale and the zero point for the range."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def reset_min_max_vals(self) -> None:
        """Forgets the range."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Records moving averages of the smallest and largest values."""

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: Any = quint8,
        qscheme: Any = _qscheme.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
        **options: Any,
    ) -> None:
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver doesn't support dynamic quantization for averaging constant of "
                f"{averaging_constant}"
            )
        super().__init__(
            dtype, qscheme, reduce_range, quant_min, quant_max, eps=eps, is_dynamic=is_dynamic, **options
        )
        self.averaging_constant = averaging_constant

    def _merge(self, low: Tensor, high: Tensor) -> None:
        _average(self, low, high, float(self.min_val) == float("inf"))


def _average(observer: Any, low: Tensor, high: Tensor, first: bool) -> None:
    for value, new in ((observer.min_val, low), (observer.max_val, high)):
        value.copy_(new if first else value + observer.averaging_constant * (new - value))


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """Records the smallest and largest value for each index of dimension ``ch_axis``."""

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: Any = quint8,
        qscheme: Any = _qscheme.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        if qscheme not in PER_CHANNEL:
            raise NotImplementedError(
                f"{name}'s qscheme only support torch.per_channel_symmetric, torch.per_channel_affine and "
                f"torch.per_channel_affine_float_qparams, got {qscheme}"
            )
        if is_dynamic:
            raise NotImplementedError(f"{name} doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, **options)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", _C.tensor([], dtype=_C.float32))
        self.register_buffer("max_val", _C.tensor([], dtype=_C.float32))

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel() == 0:
            return x_orig
        rows = x_orig.detach().to(self.min_val.dtype).transpose(0, self.ch_axis).flatten(1)
        low, high = _f.aminmax(rows, dim=1)
        first = self.min_val.numel() == 0
        if first:
            self.min_val.resize_(low.shape)
            self.max_val.resize_(high.shape)
        self._merge(low, high, first)
        return x_orig

    def _merge(self, low: Tensor, high: Tensor, first: bool) -> None:
        self.min_val.copy_(low if first else _f.minimum(low, self.min_val))
        self.max_val.copy_(high if first else _f.maximum(high, self.max_val))

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        """Returns the scales and zero points for the ranges."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def reset_min_max_vals(self) -> None:
        """Forgets the ranges."""
        self.min_val = _C.tensor([], dtype=_C.float32)
        self.max_val = _C.tensor([], dtype=_C.float32)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Records moving averages of the smallest and largest value of each channel."""

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: Any = quint8,
        qscheme: Any = _qscheme.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            ch_axis,
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **options,
        )
        self.averaging_constant = averaging_constant

    def _merge(self, low: Tensor, high: Tensor, first: bool) -> None:
        _average(self, low, high, first)


class HistogramObserver(UniformQuantizationObserverBase):
    """Records a histogram, and finds the range for which rounding and cutting cost least.

    The error is the L2 norm of the values' distances from the middles of their steps, if values are spread
    evenly over each bin. The range is narrowed from both ends, along quantiles, until the error grows.
    """

    histogram: Tensor

    def __init__(
        self,
        bins: int = 2048,
        dtype: Any = quint8,
        qscheme: Any = _qscheme.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
        eps: float = _EPS,
        is_dynamic: bool = False,
        **options: Any,
    ) -> None:
        if qscheme not in PER_TENSOR:
            raise NotImplementedError(
                "HistogramObserver's qscheme only support torch.per_tensor_symmetric and "
                f"torch.per_tensor_affine, got {qscheme}"
            )
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, **options)
        self.bins, self.upsample_rate = bins, 16
        low, high = limits_of(dtype)  # type: ignore[misc]
        self.dst_nbins = high - low + 1
        self.register_buffer("histogram", _f.zeros([bins]))
        self.register_buffer("min_val", _C.tensor(float("inf")))
        self.register_buffer("max_val", _C.tensor(float("-inf")))

    def forward(self, x_orig: Tensor) -> Tensor:
        x = x_orig.detach().float()
        low, high = _f.aminmax(x) if x.numel() else (None, None)
        if x.numel() and float(low) != float(low):
            at = getattr(self, "observed", "")
            raise RuntimeError(
                f"HistogramObserver{f' of {at}' if at else ''}: the values contain NaN\n"
                f"  hint: look for the cause with {_C.package_name()}.autograd.detect_anomaly(), or leave "
                "the module in floating point"
            )
        if x.numel() and (float(low) == -float("inf") or float(high) == float("inf")):
            warnings.warn("torch.inf detected in input tensor, ignoring input", stacklevel=2)
            x = x[x.abs() != float("inf")]
            low, high = _f.aminmax(x) if x.numel() else (None, None)
        if x.numel():
            self._record(x, low, high)
        return x_orig

    def _record(self, x: Tensor, low: Tensor, high: Tensor) -> None:
        if float(self.min_val) != float("inf"):
            low, high = _f.minimum(low, self.min_val), _f.maximum(high, self.max_val)
        counts = _f.histc(x, self.bins, min=float(low), max=float(high))
        if float(self.min_val) != float("inf"):
            counts = counts + self._spread(float(low), float(high))
        self.histogram.copy_(counts)
        self.min_val.copy_(low)
        self.max_val.copy_(high)

    def _spread(self, low: float, high: float) -> Tensor:
        """Returns the histogram over a wider range: each bin is divided into equal parts, whose middles
        decide where they belong.
        """
        old_low, old_high = float(self.min_val), float(self.max_val)
        if (low, high) == (old_low, old_high):
            return self.histogram
        if old_low == old_high:
            single = _f.histc(self.min_val.reshape(1), self.bins, min=low, max=high)
            return single * self.histogram.sum()
        parts = self.bins * self.upsample_rate
        weights = self.histogram.repeat_interleave(self.upsample_rate) / self.upsample_rate
        width = (self.max_val - self.min_val) / parts
        middles = _f.linspace(old_low, old_high, parts + 1)[:-1] + 0.5 * width
        edges = _f.linspace(low, high, self.bins + 1)
        bins = (_f.bucketize(middles, edges, right=True) - 1).clamp(0, self.bins - 1)
        return _f.bincount(bins, weights=weights, minlength=self.bins)

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        """Returns the scale and the zero point for the range with the smallest error."""
        if not _valid(self.min_val, self.max_val):
            return _C.tensor([1.0]), _C.tensor([0])
        return self._calculate_qparams(*self._non_linear_param_search())

    def _non_linear_param_search(self) -> tuple[Tensor, Tensor]:
        width = (self.max_val - self.min_val) / self.bins
        total = float(self.histogram.sum())
        up_to: list[float] = _f.cumsum(self.histogram, 0).tolist()
        step, alpha, beta = 1e-5, 0.0, 1.0
        first, last, least = 0, self.bins - 1, float("inf")
        while alpha < beta:
            next_alpha, next_beta = alpha + step, beta - step
            left = min(bisect_left(up_to, _single(next_alpha * total), first), last)
            right = max(min(bisect_right(up_to, _single(next_beta * total)) - 1, last), first)
            new_first, new_last = first, last
            if left - first > last - right:
                new_first, alpha = left, next_alpha
            else:
                new_last, beta = right, next_beta
            if (new_first, new_last) == (first, last):
                continue
            error = self._compute_quantization_error(new_first, new_last)
            if error > least:
                break
            first, last, least = new_first, new_last, error
        return self.min_val + width * first, self.min_val + width * (last + 1)

    def _compute_quantization_error(self, first: int, last: int) -> float:
        """Returns the error if the range is that of the bins ``first`` to ``last``."""
        width = (float(self.max_val) - float(self.min_val)) / self.bins
        step = width * (last - first + 1) / self.dst_nbins
        if step == 0.0:
            return 0.0
        begin = (_f.arange(self.bins) - first) * width
        end = begin + width
        step_of_begin = (begin / step).floor().clamp(0, self.dst_nbins - 1)
        step_of_end = (end / step).floor().clamp(0, self.dst_nbins - 1)
        density = self.histogram / width
        from_begin = begin - (step_of_begin + 0.5) * step
        to_end = end - (step_of_end * step + step / 2)
        half = step / 2
        full_step = density * ((half * half * half + half * half * half) / 3)
        error = density * ((half * half * half - from_begin * from_begin * from_begin) / 3)
        error = error + (step_of_end - step_of_begin - 1) * full_step
        error = error + density * ((to_end * to_end * to_end + half * half * half) / 3)
        return float(error.sum())


def _single(x: float) -> float:
    """Rounds to float32."""
    return float(_C.tensor(x, dtype=_C.float32))


class FixedQParamsObserver(ObserverBase):
    """Gives a fixed scale and zero point, for functions with a known range."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: Any = quint8,
        qscheme: Any = _qscheme.per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **options: Any,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(dtype)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", _C.tensor([scale], dtype=_C.float32))
        self.register_buffer("zero_point", _C.tensor([zero_point], dtype=_C.int32))

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Only states a dtype, for dynamic quantisation and float16."""

    def __init__(
        self,
        dtype: Any = _C.float32,
        custom_op_name: str = "",
        compute_dtype: Any = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic or bool(compute_dtype))
        self.qscheme = qscheme or _qscheme.per_tensor_affine
        self.quant_min, self.quant_max, self.custom_op = quant_min, quant_max, custom_op_name
        self.eps = _EPS if eps is None else eps

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class RecordingObserver(ObserverBase):
    """Keeps copies of all values, for debugging."""

    def __init__(self, dtype: Any = quint8) -> None:
        super().__init__(dtype)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Any) -> Any:
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Tensor]:
        return self.tensor_val


class NoopObserver(ObserverBase):
    """Only states a dtype."""

    def __init__(self, dtype: Any = _C.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype)
        self.custom_op = custom_op_name


class ReuseInputObserver(ObserverBase):
    """Says that a result has the scale and zero point of the input."""

    def __init__(self) -> None:
        super().__init__(quint8)


def get_observer_state_dict(mod: Module) -> OrderedDict:
    """Returns the part of a module's state that belongs to its observers."""
    return OrderedDict((k, v) for k, v in mod.state_dict().items() if "activation_post_process" in k)


def load_observer_state_dict(mod: Module, obs_dict: Any) -> None:
    """Loads the state of observers, which ``get_observer_state_dict`` gave."""
    missing, unexpected = mod.load_state_dict(obs_dict, strict=False)
    missing = [k for k in missing if "activation_post_process" in k]
    for what, keys in (("Missing keys", missing), ("Unexpected keys", unexpected)):
        if keys:
            raise RuntimeError(f"load_observer_state_dict: {what} for observers: {', '.join(keys)}")


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = MinMaxObserver.with_args(dtype=qint8, qscheme=_qscheme.per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = default_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2**-12
)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=qint8, qscheme=_qscheme.per_channel_symmetric
)
per_channel_weight_observer_range_neg_127_to_127 = default_per_channel_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2**-12
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=quint8, qscheme=_FLOAT_ZEROS, ch_axis=0
)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=quint4x2, qscheme=_FLOAT_ZEROS, ch_axis=0
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=quint8, quant_min=0, quant_max=255
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
