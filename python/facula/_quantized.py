"""Quantised tensors: a handle over an integer tensor, with the scales and zero points of its elements.

An element stands for ``(integer - zero_point) * scale``. Functions follow one rule: they are computed on
these numbers, and the result is quantised. The tables say with which scale and zero point: those of the
operand, or fixed ones for functions with a bounded range. Views and copies are applied to the integers.
Every other function raises, because nothing determines the scale of its result; ``ops.quantized`` has
functions that take the scale.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import _C, _qscheme, _queries
from ._types import qint8, qint32, quint4x2, quint8

Tensor = _C.Tensor
_f = _C.functions


class Integers(NamedTuple):
    """How the elements of a quantised dtype are stored."""

    dtype: _C.dtype
    low: int
    high: int


INTEGERS: dict[Any, Integers] = {
    qint8: Integers(_C.int8, -128, 127),
    quint8: Integers(_C.uint8, 0, 255),
    qint32: Integers(_C.int32, -(2**31), 2**31 - 1),
    quint4x2: Integers(_C.uint8, 0, 15),
}
_OF_INTEGERS = {_C.int8: qint8, _C.uint8: quint8, _C.int32: qint32}
_PER_TENSOR = (_qscheme.per_tensor_affine, _qscheme.per_tensor_symmetric)
FLOAT_ZEROS = _qscheme.per_channel_affine_float_qparams


class Parameters:
    """Scale and zero point of a quantised tensor; with an axis, vectors with one of each per channel."""

    __slots__ = ("_broadcast", "_input_zero_point", "axis", "dtype", "scale", "scheme", "zero_point")

    def __init__(self, dtype: Any, scale: Any, zero_point: Any, axis: int | None = None) -> None:
        self.dtype, self.scale, self.zero_point, self.axis = dtype, scale, zero_point, axis
        if axis is None:
            self.scheme = _qscheme.per_tensor_affine
        else:
            floating = zero_point.dtype.is_floating_point
            self.scheme = FLOAT_ZEROS if floating else _qscheme.per_channel_affine
        self._broadcast: dict[int, tuple[Tensor, Tensor]] = {}
        self._input_zero_point: Tensor | None = None

    def tensors(self, rank: int) -> tuple[Tensor, Tensor]:
        """Returns scale and zero point in shapes that broadcast with a tensor of ``rank`` dimensions."""
        rank = rank if self.axis is not None else 0
        if rank not in self._broadcast:
            if self.axis is None:
                kind = _C.float32 if isinstance(self.zero_point, float) else _C.int32
                pair = _C.tensor(self.scale, dtype=_C.float32), _C.tensor(self.zero_point, dtype=kind)
            else:
                sizes = [1] * rank
                sizes[self.axis] = -1
                pair = self.scale.float().reshape(sizes), self.zero_point.reshape(sizes)
            self._broadcast[rank] = pair
        return self._broadcast[rank]

    def quantize(self, x: Tensor) -> Tensor:
        """Returns the integers for the results ``x`` of an operator: rounds, then adds the zero point."""
        return self._integers_of(x, *self.tensors(x.dim()))

    def quantize_input(self, x: Tensor) -> Tensor:
        """Returns the integers for the numbers ``x`` of a user: adds the zero point, then rounds.

        PyTorch rounds in this order in ``quantize_per_tensor`` and ``quantize_per_channel``, which differs at
        ties. It adds with one rounding for 8-bit integers that share a scale, and with two elsewhere.
        """
        if self._input_zero_point is None:
            is_fused = self.axis is None and self.dtype in (qint8, quint8)
            _, zero_point = self.tensors(x.dim())
            self._input_zero_point = zero_point.to(_C.float64 if is_fused else _C.float32)
        scale, zero_point = self.tensors(x.dim())
        return self._integers_of(x, scale, self._input_zero_point.reshape(zero_point.shape))

    def _integers_of(self, x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        held = INTEGERS[self.dtype]
        return _f._quantize_affine(x, scale, zero_point, held.low, held.high, held.dtype)

    def dequantize(self, integers: Tensor) -> Tensor:
        """Returns the numbers that ``integers`` stand for."""
        scale, zero_point = self.tensors(integers.dim())
        return _f._dequantize_affine(integers, scale, zero_point, _C.float32)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameters) or self.dtype != other.dtype or self.axis != other.axis:
            return False
        if self.axis is None:
            return bool(self.scale == other.scale and self.zero_point == other.zero_point)
        return _queries.equal(self.scale, other.scale) and _queries.equal(self.zero_point, other.zero_point)

    __hash__ = None  # type: ignore[assignment]


class QuantizedTensor(Tensor):
    """A tensor whose elements are integers that stand for real numbers.

    >>> q = facula.quantize_per_tensor(facula.tensor([-1.0, 0.0, 1.0]), 0.1, 10, facula.quint8)
    >>> q.int_repr()
    tensor([ 0, 10, 20], dtype=facula.uint8)
    """

    _integers: Tensor
    _parameters: Parameters
    is_quantized = True
    requires_grad = False
    grad = grad_fn = None
    is_leaf = True

    shape = property(lambda self: self._integers.shape)
    ndim = property(lambda self: self._integers.dim())
    dtype = property(lambda self: self._parameters.dtype)

    @property
    def data(self) -> Any:
        return wrap(self._integers, self._parameters)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return _text(self)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _reduced(self)

    def __deepcopy__(self, memo: dict) -> QuantizedTensor:
        copied = memo[id(self)] = wrap(self._integers.clone(), self._parameters)
        return copied

    __copy__ = data.fget  # type: ignore[attr-defined]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            if name == "__set__":
                raise RuntimeError("the attributes of quantized tensors cannot be set")
            return func(*(_integers_of(a) for a in args), **(kwargs or {}))
        return _computed(func, name, args, kwargs or {})


def wrap(integers: Tensor, parameters: Parameters) -> QuantizedTensor:
    """Returns the quantised tensor over these integers, whose memory it shares."""
    q = _C.make_subclass(QuantizedTensor, integers)
    q.__dict__.update(_integers=integers, _parameters=parameters)
    return q


def is_quantized(x: Any) -> bool:
    return type(x) is QuantizedTensor or isinstance(x, QuantizedTensor)


def requantized(x: Tensor, parameters: Parameters) -> QuantizedTensor:
    """Returns the numbers ``x`` quantised with given parameters."""
    return wrap(parameters.quantize(x), parameters)


def real(x: Any) -> Any:
    """Returns the numbers of a quantised tensor; anything else as it is."""
    return x._parameters.dequantize(x._integers) if is_quantized(x) else x


def _steps(x: Any) -> Any:
    """Returns integers minus zero point as float32; anything that is not quantised as it is."""
    return x._integers.to(_C.float32) - x._parameters.zero_point if is_quantized(x) else x


def _integers_of(x: Any) -> Any:
    return x._integers if is_quantized(x) else x


def _mapped(f: Callable, x: Any) -> Any:
    """Applies ``f`` to the tensors of nested lists and dictionaries."""
    if isinstance(x, Tensor):
        return f(x)
    if isinstance(x, (tuple, list)):
        items = [_mapped(f, item) for item in x]
        return type(x)._make(items) if hasattr(type(x), "_make") else type(x)(items)
    return {k: _mapped(f, v) for k, v in x.items()} if isinstance(x, dict) else x


# ---- the rule

# Applied to the integers: the result has their scale and zero point.
_MOVES = frozenset(
    """__getitem__ as_strided chunk clone contiguous cpu detach diagonal dsplit expand expand_as flatten flip
    fliplr flipud hsplit index_select masked_select movedim moveaxis narrow permute pin_memory pixel_shuffle
    pixel_unshuffle repeat repeat_interleave reshape reshape_as roll select share_memory_ split
    split_with_sizes squeeze swapaxes swapdims t take_along_dim tensor_split tile transpose unbind unflatten
    unfold unsqueeze view view_as vsplit H T mT mH channel_shuffle gather empty_like resize_ squeeze_
    unsqueeze_ transpose_ t_ detach_ to index select_copy alias unsafe_chunk unsafe_split""".split()
)
# Computed on the numbers and quantised as the first operand is.
_KEEPS = frozenset(
    """relu relu6 hardtanh clamp clamp_min clamp_max clip leaky_relu threshold gelu mean std max_pool1d
    max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d interpolate upsample upsample_nearest
    upsample_bilinear upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d masked_fill
    fill pad constant_pad_nd max min topk sort amax amin cat concat concatenate stack hstack vstack dropout
    feature_dropout celu max_pool2d_with_indices boolean_dispatch reflection_pad1d reflection_pad2d
    replication_pad1d replication_pad2d native_channel_shuffle""".split()
)
# A subset of these, for which f(s x) = s f(x): computed on integers minus zero point, where halves are exact.
_HOMOGENEOUS = frozenset(
    """avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d max_pool1d
    max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d interpolate upsample upsample_nearest
    upsample_bilinear mean relu max min topk sort amax amin""".split()
)
# A subset of these: averages, which one kernel computes and rounds.
_AVERAGES = frozenset(n for n in _HOMOGENEOUS if n == "mean" or "avg_pool" in n)
# A subset of these, which is monotone and selects elements: computed on the integers.
_SELECTS = frozenset(
    "relu max_pool1d max_pool2d max_pool3d max_pool2d_with_indices adaptive_max_pool2d".split()
)
# Computed on the numbers; the result is quantised with a fixed scale, and its smallest integer stands for 0
# or for -1.
_BOUNDED = {"sigmoid": (1 / 256, 0), "hardsigmoid": (1 / 256, 0), "tanh": (2 / 256, 128)}
# Computed on the numbers; the result is not quantised.
_PLAIN = frozenset(
    """eq ne lt le gt ge equal allclose isclose item tolist greater greater_equal less less_equal not_equal
    __bool__ __float__ __int__ is_nonzero isnan isinf isfinite argmax argmin argsort __contains__
    __format__""".split()
)
# Asked of the integers.
_FACTS = frozenset(
    """size stride dim numel nelement is_contiguous storage_offset data_ptr element_size __len__
    untyped_storage is_shared is_pinned ndimension get_device is_complex
    is_conj is_neg is_inference is_same_size is_set_to
    _storage_info nbytes itemsize has_names __hash__ __dir__ is_non_overlapping_and_dense dim_order
    const_data_ptr is_same_size""".split()
)
_REVERSED = {"__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge"}


def _computed(func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
    own = _OWN.get(name)
    if own is not None:
        return own(*args, **kwargs)
    in_place = name.endswith("_") and not name.endswith("__") and name not in _MOVES
    base = name[:-1] if in_place else _REVERSED.get(name, name)
    if base in _MOVES:
        return _moved(func, name, args, kwargs)
    if base in _FACTS:
        return func(*_mapped(_integers_of, args), **kwargs)
    if base in _PLAIN:
        return func(*_mapped(real, args), **_mapped(real, kwargs))
    if base not in _KEEPS and base not in _BOUNDED:
        _refuse(name, args)
    first = _first(args, kwargs)
    if first is None:
        _refuse(name, args)
    parameters = _of_result(first, base, args)
    if in_place:
        fresh = getattr(Tensor, base, None) or func
        result = fresh(*_mapped(real, args), **_mapped(real, kwargs))
        args[0]._integers.copy_(first._parameters.quantize(result))
        return args[0]
    kwargs = {k: v for k, v in kwargs.items() if k != "inplace"}
    if base in _SELECTS and first.dtype in (quint8, qint8):
        return _selected(func, base, args, kwargs)
    if base in _AVERAGES and args and args[0] is first and not _C.is_tracing():
        key = _as_key((args[1:], sorted(kwargs.items())))
        if key is not None:
            q, p = first._integers, parameters
            layout = (tuple(q.shape), q.stride(), q.dtype)
            return wrap(_average_program(func, key, p.zero_point, p.dtype, layout)(q), p)
    if base in _HOMOGENEOUS:
        # A zero point that is no integer is added before the sum is rounded: halves go to even integers.
        steps = Parameters(parameters.dtype, 1.0, float(parameters.zero_point))
        result = func(*_mapped(_steps, args), **_mapped(_steps, kwargs))
        return _mapped(
            lambda t: wrap(steps.quantize(t), parameters) if t.dtype.is_floating_point else t, result
        )
    result = func(*_mapped(real, args), **_mapped(real, kwargs))
    return _mapped(lambda t: requantized(t, parameters) if t.dtype.is_floating_point else t, result)


def _as_key(value: Any) -> Any:
    """Returns arguments as a hashable tree of (type, value); None if there are tensors among them."""
    if isinstance(value, (list, tuple)):
        items = tuple(map(_as_key, value))
        kind = list if isinstance(value, list) else tuple
        return None if any(i is None for i in items) else (kind, items)
    is_plain = value is None or isinstance(value, (bool, int, float, str, _C.dtype))
    return (type(value), value) if is_plain else None


def _from_key(key: tuple) -> Any:
    kind, value = key
    return kind(map(_from_key, value)) if kind in (list, tuple) else value


@functools.lru_cache(1024)
def _average_program(func: Callable, key: tuple, zero_point: int, dtype: Any, layout: tuple) -> Callable:
    """Returns the program of an average of integers with these arguments, for this layout."""
    from .program import trace

    args, kwargs = _from_key(key)
    steps = Parameters(dtype, 1.0, float(zero_point))

    def average(integers: Tensor) -> Tensor:
        return steps.quantize(func(integers.to(_C.float32) - zero_point, *args, **dict(kwargs)))

    sizes, strides, kind = layout
    return trace(average, _f.empty_strided(sizes, strides, dtype=kind))


def _selected(func: Callable, base: str, args: tuple, kwargs: dict) -> Any:
    """Applies a function that selects integers, or cuts them at the zero point."""
    q = args[0] if args else kwargs["input"]
    if base == "relu":
        return wrap(q._integers.clamp(min=q._parameters.zero_point), q._parameters)
    result = func(*_mapped(_integers_of, args), **_mapped(_integers_of, kwargs))
    dtype = q._integers.dtype
    return _mapped(lambda t: wrap(t, q._parameters) if t.dtype == dtype else t, result)


def _first(args: tuple, kwargs: dict) -> QuantizedTensor | None:
    operands: list[QuantizedTensor] = []
    _mapped(lambda t: operands.append(t) if is_quantized(t) else None, (args, kwargs))
    return operands[0] if operands else None


def _of_result(first: QuantizedTensor, name: str, args: tuple) -> Parameters:
    """Returns the scale and zero point of a function's result."""
    p = first._parameters
    if name in _BOUNDED:
        scale, zero_point = _BOUNDED[name]
        if p.dtype not in (quint8, qint8):
            raise RuntimeError(
                f"{name}: expected a tensor of dtype {quint8} or {qint8}, got {p.dtype}\n"
                "  hint: dequantize() gives numbers that every function takes"
            )
        return Parameters(p.dtype, scale, zero_point + INTEGERS[p.dtype].low)
    if p.axis is not None:
        raise RuntimeError(
            f"{name}: tensors quantized per channel are only moved and compared, got one of shape "
            f"{tuple(first.shape)} with axis {p.axis}\n  hint: dequantize() gives numbers that "
            "every function takes"
        )
    return p


def _refuse(name: str, args: tuple) -> None:
    first = _first(args, {})
    held = f"{first.dtype} {tuple(first.shape)}" if first is not None else "a quantized tensor"
    advice = (
        f"; ops.quantized.{name} takes the scale and zero point of the result" if name in _WITH_SCALE else ""
    )
    raise NotImplementedError(
        f"{name}: not defined for quantized tensors, got {held}\n"
        f"  hint: dequantize() gives numbers that every function takes{advice}"
    )


_WITH_SCALE = frozenset(
    "add mul cat matmul hardswish elu celu leaky_relu layer_norm group_norm instance_norm "
    "batch_norm softmax linear "
    "conv1d conv2d conv3d prelu sigmoid dropout".split()
)


# ---- views and copies


def _moved(func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
    q = _first(args, kwargs)
    if q is None:
        _refuse(name, args)
    p = q._parameters  # type: ignore[union-attr]
    if name == "to":
        _check_to(args[1:], kwargs)
    result = func(*_mapped(_integers_of, args), **_mapped(_integers_of, kwargs))
    if name.endswith("_") and not name.endswith("__"):
        if p.axis is not None:
            _refuse(name, args)
        return q
    if p.axis is None:
        return _mapped(lambda t: wrap(t, p), result)
    return _zipped(result, _channels(func, q, args, kwargs), p)


def _check_to(args: tuple, kwargs: dict) -> None:
    for a in (*args, *kwargs.values()):
        if isinstance(a, _C.dtype):
            raise RuntimeError(
                f"to: a quantized tensor cannot be converted to {a}\n"
                "  hint: dequantize() gives float32, int_repr() the integers"
            )


def _channels(func: Callable, q: QuantizedTensor, args: tuple, kwargs: dict) -> Any:
    """Applies a view or copy to a tensor that holds the channel of each element; strides of 0 elsewhere."""
    axis, sizes = q._parameters.axis, q.shape
    shape = [1] * len(sizes)
    shape[axis] = sizes[axis]  # type: ignore[index]
    numbers = _f.arange(sizes[axis]).reshape(shape).expand(sizes)  # type: ignore[index]
    swap = lambda a: numbers if a is q else _integers_of(a)  # noqa: E731
    return func(*_mapped(swap, args), **_mapped(swap, kwargs))


def _zipped(integers: Any, channels: Any, p: Parameters) -> Any:
    if isinstance(integers, Tensor):
        return wrap(integers, _along(channels, p))
    return type(integers)(_zipped(i, c, p) for i, c in zip(integers, channels))


def _along(channels: Tensor, p: Parameters) -> Parameters:
    """Returns the parameters of elements that belong to these channels."""
    lines = {}
    for axis in range(channels.dim()) if channels.numel() else ():
        index: list[Any] = [0] * channels.dim()
        sizes = [1] * channels.dim()
        index[axis], sizes[axis] = slice(None), -1
        line = channels[tuple(index)]
        if _queries.equal(channels, line.reshape(sizes).expand(channels.shape)):
            lines[axis] = line
    for axis, line in lines.items():
        if bool((line != line[0]).any()):
            return Parameters(p.dtype, p.scale[line], p.zero_point[line], axis)
    if channels.numel() == 0:
        axis = min(p.axis or 0, channels.dim() - 1)
        return Parameters(
            p.dtype, p.scale[: channels.shape[axis]], p.zero_point[: channels.shape[axis]], axis
        )
    if channels.dim() and not lines:
        raise RuntimeError(
            "a view of a tensor quantized per channel must keep the channels along one dimension\n"
            "  hint: dequantize() gives numbers that every function takes"
        )
    single = [axis for axis in lines if channels.shape[axis] == 1]
    if single:
        line = lines[single[0]]
        return Parameters(p.dtype, p.scale[line], p.zero_point[line], single[0])
    channel = channels.reshape(-1)[0]
    if channels.dim() == 0 or p.scheme is not FLOAT_ZEROS:
        return Parameters(p.dtype, float(p.scale[channel]), int(p.zero_point[channel]))
    return Parameters(p.dtype, p.scale[lines[0]], p.zero_point[lines[0]], 0)


# ---- functions of quantised tensors alone


def _quantized(x: Any, name: str) -> QuantizedTensor:
    if not is_quantized(x):
        raise NotImplementedError(
            f"{name}: expected a quantized tensor, got {getattr(x, 'dtype', type(x).__name__)}\n"
            "  hint: quantize_per_tensor(x, scale, zero_point, quint8) gives one"
        )
    return x


def int_repr(input: Tensor) -> Tensor:
    """Returns a copy of the integers; two of 4 bits in each byte of the last dimension."""
    q = _quantized(input, "int_repr")
    if q.dtype is quint4x2:
        return packed4(q._integers)
    return q._integers.clone()


def packed4(integers: Tensor) -> Tensor:
    """Returns integers under 16 in pairs, the first of each pair in the low half of a byte."""
    if integers.shape[-1] % 2:
        integers = _f.cat([integers, _f.zeros_like(integers[..., :1])], dim=-1)
    return integers[..., ::2] + integers[..., 1::2] * 16


def unpacked4(packed: Tensor, columns: int) -> Tensor:
    """Returns the integers of pairs in bytes."""
    pairs = _f.stack([packed % 16, packed // 16], dim=-1)
    return pairs.reshape(*packed.shape[:-1], -1)[..., :columns].contiguous()


def dequantize(input: Any) -> Any:
    """Returns the numbers of a quantised tensor, or of several, as float32."""
    if isinstance(input, (list, tuple)):
        return [dequantize(t) for t in input]
    return real(input) if is_quantized(input) else input.to(_C.float32)


def qscheme(input: Tensor) -> Any:
    """Returns the quantisation scheme, such as ``per_tensor_affine``."""
    return _quantized(input, "qscheme")._parameters.scheme


def _per_tensor(input: Tensor, name: str) -> Parameters:
    p = _quantized(input, name)._parameters
    if p.axis is not None:
        raise RuntimeError(f"{name}: expected a tensor quantized per tensor, got {p.scheme}")
    return p


def _per_channel(input: Tensor, name: str) -> Parameters:
    p = _quantized(input, name)._parameters
    if p.axis is None:
        raise RuntimeError(f"{name}: expected a tensor quantized per channel, got {p.scheme}")
    return p


def q_scale(input: Tensor) -> float:
    """Returns the scale of a tensor quantised per tensor."""
    return _per_tensor(input, "q_scale").scale


def q_zero_point(input: Tensor) -> int:
    """Returns the zero point of a tensor quantised per tensor."""
    return _per_tensor(input, "q_zero_point").zero_point


def q_per_channel_scales(input: Tensor) -> Tensor:
    """Returns the scales of the channels."""
    return _per_channel(input, "q_per_channel_scales").scale


def q_per_channel_zero_points(input: Tensor) -> Tensor:
    """Returns the zero points of the channels."""
    return _per_channel(input, "q_per_channel_zero_points").zero_point


def q_per_channel_axis(input: Tensor) -> int:
    """Returns the dimension of the channels."""
    return _per_channel(input, "q_per_channel_axis").axis  # type: ignore[return-value]


def _equal(input: Any, other: Any) -> bool:
    if not (is_quantized(input) and is_quantized(other)):
        raise RuntimeError("equal: expected two quantized tensors, or none\n  hint: dequantize() one of them")
    return (
        input._parameters.scheme is other._parameters.scheme
        and input._parameters == other._parameters
        and _queries.equal(input._integers, other._integers)
    )


def _copy(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    if not is_quantized(self):
        raise RuntimeError(
            "copy_: a quantized tensor cannot be copied into one that is not\n  hint: copy src.dequantize()"
        )
    if not is_quantized(src):
        if src.dtype != _C.float32:
            raise RuntimeError(f"copy_: quantized tensors take elements of float32, got {src.dtype}")
        self._integers.copy_(self._parameters.quantize_input(src.expand(self.shape)))
        return self
    if self.dtype != src.dtype or self._parameters.scheme is not src._parameters.scheme:
        raise RuntimeError(
            f"copy_: quantized tensors must have the same dtype and scheme, got {self.dtype} "
            f"{self._parameters.scheme} and {src.dtype} {src._parameters.scheme}"
        )
    self._integers.copy_(src._integers)
    self.__dict__["_parameters"] = src._parameters
    return self


def _setitem(self: QuantizedTensor, index: Any, value: Any) -> None:
    p = self._parameters
    if p.axis is not None:
        raise RuntimeError("__setitem__: a tensor quantized per channel cannot be assigned to by index")
    value = real(value)
    value = value if isinstance(value, Tensor) else _C.tensor(float(value))
    self._integers[index] = p.quantize_input(value)


def _is_floating_point(self: Tensor) -> bool:
    return False


def _requires_grad(self: QuantizedTensor, requires_grad: bool = True) -> QuantizedTensor:
    if requires_grad:
        raise RuntimeError("only tensors of floating-point or complex dtype can require gradients")
    return self


_OWN: dict[str, Callable] = {
    "int_repr": int_repr,
    "dequantize": dequantize,
    "qscheme": qscheme,
    "q_scale": q_scale,
    "q_zero_point": q_zero_point,
    "q_per_channel_scales": q_per_channel_scales,
    "q_per_channel_zero_points": q_per_channel_zero_points,
    "q_per_channel_axis": q_per_channel_axis,
    "equal": _equal,
    "copy_": _copy,
    "__setitem__": _setitem,
    "is_floating_point": _is_floating_point,
    "is_complex": _is_floating_point,
    "__iter__": lambda self: iter(self.unbind(0)),
    "is_signed": lambda self: INTEGERS[self.dtype].low < 0,
    "requires_grad_": _requires_grad,
    "type": lambda self, *a, **k: "torch.quantized." + repr(self.dtype).rpartition(".")[2],
}


# ---- creation


def recordable(f: Callable) -> Callable:
    """Lets arguments that are no tensors, such as the proxies of a trace, override a function."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        others = [a for a in (*args, *kwargs.values()) if not isinstance(a, Tensor)]
        nested = [
            item for a in others if type(a) in (list, tuple) for item in a if not isinstance(item, Tensor)
        ]
        overriding = [a for a in (*others, *nested) if hasattr(type(a), "__torch_function__")]
        if overriding:
            return _C.handle_torch_function(call, overriding, *args, **kwargs)
        return f(*args, **kwargs)

    return call


def _held(dtype: Any, name: str) -> Integers:
    if dtype not in INTEGERS:
        raise RuntimeError(
            f"{name}: expected a quantized dtype (quint8, qint8, qint32, quint4x2), got {dtype}"
        )
    return INTEGERS[dtype]


def _check_scale(scale: float, name: str) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise RuntimeError(
            f"{name}: scale must be a positive finite number, got {scale}\n"
            "  hint: an observer's calculate_qparams() gives scales that fit the values it has seen"
        )


def _check_zero_point(zero_point: int, held: Integers, name: str) -> None:
    if zero_point > held.high or zero_point < held.low:
        which = "above upper" if zero_point > held.high else "below lower"
        raise RuntimeError(
            f"{name}: zero_point {zero_point} is {which} bound.\n"
            f"  hint: integers of this dtype are between {held.low} and {held.high}"
        )


def _check_input(x: Any, name: str) -> None:
    if is_quantized(x) or x.dtype != _C.float32:
        raise RuntimeError(f"{name}: Quantize only works on Float Tensor, got {x.dtype}\n  hint: x.float()")


@recordable
def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """Returns ``input`` quantised with one scale and zero point; lists with one of each per tensor.

    Args:
        input: a float32 tensor, or a list of tensors.
        scale: what one step stands for.
        zero_point: the integer that stands for 0.
        dtype: ``quint8``, ``qint8``, ``qint32`` or ``quint4x2``.
    """
    if isinstance(input, (list, tuple)):
        pairs = zip(input, scale.tolist(), zero_point.tolist())
        return tuple(quantize_per_tensor(x, s, int(z), dtype) for x, s, z in pairs)
    held = _held(dtype, "quantize_per_tensor")
    _check_input(input, "quantize_per_tensor")
    scale, zero_point = float(scale), int(zero_point)
    _check_scale(scale, "quantize_per_tensor")
    _check_zero_point(zero_point, held, "quantize_per_tensor")
    parameters = Parameters(dtype, scale, zero_point)
    return wrap(parameters.quantize_input(input.detach()), parameters)


@recordable
def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any
) -> QuantizedTensor:
    """Returns ``input`` quantised with a scale and a zero point for each index of dimension ``axis``."""
    name = "quantize_per_channel"
    held = _held(dtype, name)
    _check_input(input, name)
    parameters = _channel_parameters(name, dtype, scales, zero_points, axis, input.shape)
    if not zero_points.dtype.is_floating_point and zero_points.numel():
        for zero_point in (zero_points.min(), zero_points.max()):
            _check_zero_point(int(zero_point), held, name)
    return wrap(parameters.quantize_input(input.detach()), parameters)


def _channel_parameters(
    name: str, dtype: Any, scales: Tensor, zero_points: Tensor, axis: int, sizes: Sequence[int]
) -> Parameters:
    axis = axis + len(sizes) if axis < 0 else axis
    if not 0 <= axis < len(sizes):
        raise RuntimeError(f"{name}: axis {axis} is out of range for a tensor of shape {tuple(sizes)}")
    for what, t in (("scales", scales), ("zero_points", zero_points)):
        if t.dim() != 1 or t.numel() != sizes[axis]:
            raise RuntimeError(
                f"{name}: {what} must have one element for each of the {sizes[axis]} indices of "
                f"dimension {axis}, "
                f"got shape {tuple(t.shape)}"
            )
    if scales.numel() and not bool(((scales > 0) & _f.isfinite(scales)).all()):
        bad = scales[~((scales > 0) & _f.isfinite(scales))]
        _check_scale(float(bad[0]), name)
    if zero_points.dtype.is_floating_point:
        return Parameters(dtype, scales.detach().float(), zero_points.detach().float(), axis)
    return Parameters(dtype, scales.detach().double(), zero_points.detach().long(), axis)


def choose_parameters(low: float, high: float, held: Integers, reduce_range: bool) -> tuple[float, int]:
    """Returns scale and zero point for numbers between ``low`` and ``high``, such that 0 is exact.

    The rule is FBGEMM's: the zero point is computed from the limit that gives the smaller rounding error.
    """
    qmin, qmax = held.low, held.high
    if reduce_range:
        qmin, qmax = int(qmin / 2), int(qmax / 2)
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (qmax - qmin)
    single = float(_C.tensor(scale, dtype=_C.float32))
    if single == 0 or math.isinf(1 / single if single else math.inf) or not math.isfinite(scale):
        scale = 0.1
    smallest = 6.1e-5
    if scale < smallest:
        factor, scale = smallest / scale, smallest
        low, high = (-smallest * (qmax - qmin), 0.0) if high == 0 else (low, high)
        if low == 0:
            high = smallest * (qmax - qmin)
        elif high != 0:
            low, high = low * factor, high * factor
    from_low, from_high = qmin - low / scale, qmax - high / scale
    error_low, error_high = abs(qmin) + abs(low / scale), abs(qmax) + abs(high / scale)
    start = from_low if error_low < error_high else from_high
    return scale, round(min(max(start, qmin), qmax))


@recordable
def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> QuantizedTensor:
    """Returns ``input`` quantised with the scale and zero point of its smallest and largest element."""
    name = "quantize_per_tensor_dynamic"
    held = _held(dtype, name)
    if dtype not in (quint8, qint8):
        raise RuntimeError(f"{name}: dtype {dtype} not supported; quint8 and qint8 are")
    _check_input(input, name)
    low, high = (float(t) for t in _f.aminmax(input.detach())) if input.numel() else (0.0, 0.0)
    return quantize_per_tensor(input, *choose_parameters(low, high, held, reduce_range), dtype)


def _of_integers(name: str, input: Tensor) -> Any:
    if input.dtype not in _OF_INTEGERS:
        raise RuntimeError(f"{name}: expected integers of dtype uint8, int8 or int32, got {input.dtype}")
    return _OF_INTEGERS[input.dtype]


def _make_per_tensor_quantized_tensor(input: Tensor, scale: float, zero_point: int) -> QuantizedTensor:
    """Returns the quantised tensor with these integers."""
    dtype = _of_integers("_make_per_tensor_quantized_tensor", input)
    _check_scale(float(scale), "_make_per_tensor_quantized_tensor")
    return wrap(input.clone(), Parameters(dtype, float(scale), int(zero_point)))


def _make_per_channel_quantized_tensor(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int
) -> QuantizedTensor:
    """Returns the tensor quantised per channel with these integers."""
    name = "_make_per_channel_quantized_tensor"
    dtype = _of_integers(name, input)
    return wrap(input.clone(), _channel_parameters(name, dtype, scale, zero_point, axis, input.shape))


def _empty_affine_quantized(
    size: Sequence[int],
    *more: Any,
    scale: float = 1,
    zero_point: int = 0,
    dtype: Any = quint8,
    memory_format: Any = None,
    device: Any = None,
    **options: Any,
) -> QuantizedTensor:
    """Returns a quantised tensor with undefined elements."""
    sizes = [size, *more] if isinstance(size, int) else list(size)
    integers = _f.empty(sizes, dtype=_held(dtype, "_empty_affine_quantized").dtype)
    if memory_format is not None:
        integers = integers.contiguous(memory_format=memory_format)
    return wrap(integers, Parameters(dtype, float(scale), int(zero_point)))


def _empty_per_channel_affine_quantized(
    size: Sequence[int], *, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any = qint8, **options: Any
) -> QuantizedTensor:
    """Returns a tensor quantised per channel with undefined elements."""
    name = "_empty_per_channel_affine_quantized"
    integers = _f.empty(list(size), dtype=_held(dtype, name).dtype)
    return wrap(integers, _channel_parameters(name, dtype, scales, zero_points, axis, integers.shape))


def _choose_qparams_per_tensor(input: Tensor, reduce_range: bool = False) -> tuple[float, int]:
    """Returns the scale and zero point with which quint8 holds the elements."""
    low, high = (float(t) for t in _f.aminmax(input)) if input.numel() else (0.0, 0.0)
    return choose_parameters(low, high, INTEGERS[quint8], reduce_range)


# ---- text and files


def _elements_text(q: QuantizedTensor) -> str:
    from ._tensor_str import _tensor_str

    return _tensor_str(real(q), len("tensor("))


def _text(q: QuantizedTensor) -> str:
    p = q._parameters
    notes = [f"size={tuple(q.shape)}", f"dtype={p.dtype}", f"quantization_scheme={p.scheme}"]
    if p.axis is None:
        notes += [f"scale={p.scale}", f"zero_point={p.zero_point}"]
    else:
        notes += [f"scale={p.scale}", f"zero_point={p.zero_point}", f"axis={p.axis}"]
    text = "tensor(" + ("[]" if q.numel() == 0 else _elements_text(q))
    indent, width = len("tensor("), _C.get_print_options()["linewidth"]
    last = len(text) - (text.rfind("\n") + 1) + 1
    for note in notes:
        if last + len(note) + 2 > width:
            text += ",\n" + " " * indent + note
            last = indent + len(note)
        else:
            text += ", " + note
            last += len(note) + 2
    return text + ")"


def _reduced(q: QuantizedTensor) -> tuple:
    from ._utils import _rebuild_qtensor
    from .storage import QuantizedStorage

    p, integers = q._parameters, q._integers
    sizes, strides, offset = tuple(q.shape), integers.stride(), integers.storage_offset()
    if p.dtype is quint4x2:
        integers = packed4(integers.contiguous().reshape(1, -1)).reshape(-1)
        strides, offset = _f.empty(sizes).stride(), 0
    quantizer = (
        (p.scheme, p.scale, p.zero_point) if p.axis is None else (p.scheme, p.scale, p.zero_point, p.axis)
    )
    storage = QuantizedStorage(integers, p.dtype)
    return _rebuild_qtensor, (storage, offset, sizes, tuple(strides), quantizer, False, OrderedDict())


def rebuilt(integers: Tensor, dtype: Any, sizes: Any, quantizer: tuple) -> QuantizedTensor:
    """Returns the quantised tensor of a checkpoint. Raises RuntimeError for parameters that do not fit."""
    scheme, scale, zero_point, *axis = quantizer
    if scheme in _PER_TENSOR:
        return wrap(integers, Parameters(dtype, float(scale), int(zero_point)))
    name = "load"
    return wrap(integers, _channel_parameters(name, dtype, scale, zero_point, axis[0], sizes))
