"""``ops.quantized``: functions of quantised tensors that take the scale and zero point of their result.

Elementwise functions, norms and products of two activations are computed on the numbers that the integers
stand for; layers with weights sum products of integers exactly (``_int8_linear``, ``_int8_conv2d``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import _C
from ._quantized import (
    INTEGERS,
    Parameters,
    QuantizedTensor,
    choose_parameters,
    is_quantized,
    packed4,
    real,
    recordable,
    requantized,
    unpacked4,
    wrap,
)
from ._types import qint8, quint4x2, quint8

Tensor = _C.Tensor
_f = _C.functions


def _nn() -> Any:
    from .nn import functional

    return functional


def _check(x: Any, name: str, dtypes: tuple = (quint8, qint8)) -> QuantizedTensor:
    if not is_quantized(x) or x.dtype not in dtypes:
        held = getattr(x, "dtype", type(x).__name__)
        raise RuntimeError(
            f"quantized::{name}: expected a quantized tensor of dtype "
            f"{' or '.join(map(str, dtypes))}, got {held}\n"
            "  hint: a QuantStub in front of the module, or quantize_per_tensor, gives one"
        )
    if x._parameters.axis is not None:
        raise RuntimeError(
            f"quantized::{name}: expected a tensor quantized per tensor, got {x._parameters.scheme}"
        )
    return x


def _same_dtype(a: QuantizedTensor, b: QuantizedTensor, name: str) -> None:
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"quantized::{name}: both operands must have the same dtype, got {a.dtype} and {b.dtype}"
        )


# ---- elementwise functions


def _binary(name: str, f: Callable, relu: bool) -> Callable:
    def call(qa: Any, qb: Any, scale: Any = None, zero_point: Any = None, out: Any = None) -> Any:
        if not is_quantized(qa):
            qa, qb = qb, qa
        a = _check(qa, name)
        if scale is None and out is None and isinstance(zero_point, type(None)) and not is_quantized(qb):
            return _with_number(name, a, float(qb), relu)
        b = _check(qb, name)
        _same_dtype(a, b, name)
        if out is None and is_quantized(scale):
            out = scale
        p = out._parameters if out is not None else Parameters(a.dtype, float(scale), int(zero_point))
        integers = _pair(a, b, p, f is _f.mul, relu)
        if out is None:
            return wrap(integers, p)
        out._integers.copy_(integers)
        return out

    call.__name__ = call.__qualname__ = name
    return call


def _pair(a: QuantizedTensor, b: QuantizedTensor, p: Parameters, multiply: bool, relu: bool) -> Tensor:
    """Returns the integers of the sum or product of two tensors, which one kernel computes."""
    operands = [a._integers, b._integers]
    for q in (a._parameters, b._parameters, p):
        operands += q.tensors(0)
    if _C.is_tracing():
        return _rounded_pair(multiply, relu, p.dtype, *operands)
    layout = tuple((tuple(t.shape), t.stride(), t.dtype) for t in operands)
    return _pair_program(multiply, relu, p.dtype, layout)(*operands)


def _rounded_pair(multiply: bool, relu: bool, dtype: Any, *operands: Tensor) -> Tensor:
    a, b, a_scale, a_zero, b_scale, b_zero, scale, zero_point = operands
    x = _f._dequantize_affine(a, a_scale, a_zero, _C.float32)
    y = _f._dequantize_affine(b, b_scale, b_zero, _C.float32)
    result = x * y if multiply else x + y
    held = INTEGERS[dtype]
    result = result.relu() if relu else result
    return _f._quantize_affine(result, scale, zero_point, held.low, held.high, held.dtype)


@functools.lru_cache(1024)
def _pair_program(multiply: bool, relu: bool, dtype: Any, layout: tuple) -> Callable:
    """Returns the program of ``_rounded_pair`` for operands of these layouts."""
    from .program import trace

    likes = [_f.empty_strided(sizes, strides, dtype=kind) for sizes, strides, kind in layout]
    return trace(functools.partial(_rounded_pair, multiply, relu, dtype), *likes)


def _with_number(name: str, a: QuantizedTensor, number: float, relu: bool) -> QuantizedTensor:
    """Adds or multiplies by a number: its effect is moved into scale and zero point as far as it fits."""
    p, held = a._parameters, INTEGERS[a.dtype]
    low, high = held.low, held.high
    if "mul" in name:
        result = _times(a, number, relu)
        return result
    steps = round(number / p.scale)
    zero_point, scale = p.zero_point - steps, p.scale
    if low <= zero_point <= high:
        q = wrap(a._integers.clone(), Parameters(p.dtype, scale, zero_point))
    else:
        # The range of the integers with the new zero point, mapped into the limits again.
        if zero_point < low:
            scale, new_zero = p.scale * (high - zero_point) / (high - low), low
        else:
            scale, new_zero = p.scale * (zero_point - low) / (high - low), high
        exact = Parameters(p.dtype, p.scale, zero_point)
        q = requantized(exact.dequantize(a._integers), Parameters(p.dtype, scale, new_zero))
    return q.relu() if relu else q


def _times(a: QuantizedTensor, number: float, relu: bool) -> QuantizedTensor:
    p, held = a._parameters, INTEGERS[a.dtype]
    if number > 0:
        q = wrap(a._integers.clone(), Parameters(p.dtype, p.scale * number, p.zero_point))
    elif number < 0:
        mirrored = (held.low + held.high) - a._integers.to(_C.int32)
        zero_point = held.low + held.high - p.zero_point
        q = wrap(mirrored.to(held.dtype), Parameters(p.dtype, p.scale * -number, zero_point))
    else:
        zeros = _f.zeros_like(a._integers)
        q = wrap(zeros, Parameters(p.dtype, 1.0, 0))
    return q.relu() if relu else q


def _scaled(name: str, f: Callable, scale_at: int, relu: bool = False) -> Callable:
    """Returns a function of a quantised tensor that takes the scale and zero point of its result as
    arguments ``scale_at`` and the next one.
    """

    def call(qx: Any, *args: Any, **kwargs: Any) -> Any:
        q = _check(qx, name)
        args_list = list(args)
        parameters = [
            kwargs.pop(key) if key in kwargs else args_list.pop(scale_at - 1)
            for key in ("output_scale", "output_zero_point")
        ]
        y = f(real(q), *args_list, **kwargs)
        y = y.relu() if relu else y
        return requantized(y, Parameters(q.dtype, float(parameters[0]), int(parameters[1])))

    call.__name__ = call.__qualname__ = name
    return call


def _norm(x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    return _nn().batch_norm(x, mean, var, weight, bias, False, 0.0, eps)


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    negative = scale * alpha * ((x * input_scale).exp() - 1)
    return _f.where(x > 0, x * scale, negative)


def _leaky(x: Tensor, negative_slope: float, inplace: bool = False) -> Tensor:
    return _nn().leaky_relu(x, negative_slope)


def _dropout(x: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    return x


def cat(qx: Sequence[Any], dim: int, scale: Any = None, zero_point: Any = None, relu: bool = False) -> Any:
    """Concatenates, and quantises with the parameters scale or that of the first tensor."""
    first = _check(qx[0], "cat")
    for q in qx[1:]:
        _same_dtype(first, _check(q, "cat"), "cat")
    p = first._parameters
    if scale is not None:
        p = Parameters(first.dtype, float(scale), int(zero_point))
    result = _f.cat([real(q) for q in qx], dim=dim)
    return requantized(result.relu() if relu else result, p)


def matmul(qa: Any, qb: Any, scale: float, zero_point: int) -> Any:
    """The product of two quantised tensors."""
    a, b = _check(qa, "matmul"), _check(qb, "matmul")
    _same_dtype(a, b, "matmul")
    p = Parameters(a.dtype, float(scale), int(zero_point))
    sums = _f.matmul(_centred(a), _centred(b))
    return requantized(sums.float() * (a._parameters.scale * b._parameters.scale), p)


def clamp(qx: Any, min: Any = None, max: Any = None) -> Any:
    return _check(qx, "clamp").clamp(min, max)


def threshold(qx: Any, threshold: float, value: float) -> Any:
    return _nn().threshold(_check(qx, "threshold"), threshold, value)


def relu6(qx: Any, inplace: bool = False) -> Any:
    return _nn().relu6(_check(qx, "relu6"))


def _max_pool(rank: int) -> Callable:
    name = f"max_pool{rank}d"

    def call(
        qx: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        pool = getattr(_nn(), name)
        return pool(_check(qx, name), kernel_size, stride or kernel_size, padding, dilation, ceil_mode)

    call.__name__ = call.__qualname__ = name
    return call


# ---- products with weights


def _centred(q: QuantizedTensor) -> Tensor:
    """Returns integers minus zero points as float64, which holds sums of their products exactly."""
    _, zero_point = q._parameters.tensors(q._integers.dim())
    return q._integers.to(_C.float64) - zero_point


def _no_zero_points(weight: QuantizedTensor) -> bool:
    zero_point = weight._parameters.zero_point
    return not bool(zero_point.any()) if isinstance(zero_point, Tensor) else zero_point == 0


class PackedParams:
    """A quantised weight and a bias, with what products need of them.

    Calling it returns its pair of weight and bias, as ``unpack`` does.
    """

    kind = "linear"

    def __init__(self, weight: Any, bias: Any, **geometry: Any) -> None:
        self.weight = self._checked(weight)
        self.bias_ = None if bias is None else bias.detach()
        self.geometry = geometry
        self._channels = (
            weight.shape[1] * geometry["groups"] if geometry.get("transposed") else weight.shape[0]
        )
        self._is_symmetric = weight.dtype is qint8 and _no_zero_points(weight)
        self._factors: dict[tuple, tuple] = {}

    def _checked(self, weight: Any) -> Any:
        if not is_quantized(weight):
            raise RuntimeError(
                f"quantized::{self.kind}_prepack: expected a quantized weight, got {weight.dtype}\n"
                "  hint: quantize_per_tensor or quantize_per_channel gives one"
            )
        if weight.dtype not in (qint8,):
            raise RuntimeError(
                f"quantized::{self.kind}_prepack: the weight must be {qint8}, got {weight.dtype}"
            )
        return weight

    def unpack(self) -> tuple:
        return self.weight, self.bias_

    def bias(self) -> Any:
        return self.bias_

    def scales(self) -> Tensor:
        """Returns the scale of each output channel."""
        scale = self.weight._parameters.scale
        if isinstance(scale, Tensor):
            repeats = self._channels // scale.numel()
            return scale.double() if repeats == 1 else scale.double().repeat(repeats)
        return _f.full([self._channels], scale, dtype=_C.float64)

    def factors(self, input_scale: float, output_scale: float) -> tuple:
        """Returns multiplier and bias with which sums of integers become steps of the result."""
        key = input_scale, output_scale
        if key not in self._factors:
            if len(self._factors) > 16:
                self._factors.clear()
            multiplier = (self.scales() * (input_scale / output_scale)).float()
            bias = None if self.bias_ is None else (self.bias_.double() / output_scale).float()
            self._factors[key] = multiplier, bias
        return self._factors[key]

    def __fx_create_arg__(self, tracer: Any) -> Any:
        name = next((name for name, value in vars(tracer.root).items() if value is self), None)
        if name is None:
            name = tracer.get_fresh_qualname("_packed_weight_")
            setattr(tracer.root, name, self)
        return tracer.create_node("get_attr", name, (), {})

    def __reduce__(self) -> tuple:
        return _repacked, (type(self), self.weight, self.bias_, self.geometry)


def _repacked(kind: type, weight: Any, bias: Any, geometry: dict) -> Any:
    return kind(weight, bias, **geometry)


class LinearPackedParams(PackedParams):
    """Packed parameters of a linear layer."""


class HalfPackedParams(PackedParams):
    """The weight of a linear layer in float16."""

    def _checked(self, weight: Any) -> Any:
        largest = 65504.0
        return weight.detach().float().clamp(-largest, largest).half()

    def __init__(self, weight: Any, bias: Any) -> None:
        self.weight, self.bias_ = self._checked(weight), None if bias is None else bias.detach()
        self.geometry = {}


class ConvPackedParams(PackedParams):
    """Packed parameters of a convolution."""

    kind = "conv"

    def stride(self) -> list:
        return self.geometry["stride"]

    def padding(self) -> list:
        return self.geometry["padding"]

    def output_padding(self) -> list:
        return self.geometry["output_padding"]

    def dilation(self) -> list:
        return self.geometry["dilation"]

    def groups(self) -> int:
        return self.geometry["groups"]

    def transpose(self) -> bool:
        return self.geometry["transposed"]


def linear_prepack(W: Any, B: Any = None) -> LinearPackedParams:
    """Packs weight and bias of a linear layer."""
    if W.dim() != 2:
        raise RuntimeError(
            f"quantized::linear_prepack: the weight must have 2 dimensions, got shape {tuple(W.shape)}"
        )
    return LinearPackedParams(W, B)


def linear_prepack_fp16(W: Any, B: Any = None) -> HalfPackedParams:
    """Packs a weight as float16 and a bias."""
    return HalfPackedParams(W, B)


def _unpack(packed: Any) -> tuple:
    """Returns weight and bias."""
    return packed.unpack()


def _finished(
    sums: Tensor, w: PackedParams, p: Parameters | None, in_scale: float, relu: bool, axis: int
) -> Any:
    """Makes the result from exact sums: quantised, or float32 without parameters."""
    multiplier, bias = w.factors(in_scale, p.scale if p else 1.0)
    shape = [1] * sums.dim()
    shape[axis] = -1
    y = sums.float() * multiplier.reshape(shape)
    y = y if bias is None else y + bias.reshape(shape)
    y = y.relu() if relu else y
    return y if p is None else requantized(y, Parameters(p.dtype, 1.0, p.zero_point))._integers


def _linear(name: str, q: QuantizedTensor, w: PackedParams, p: Parameters | None, relu: bool) -> Any:
    """Computes a linear layer; the result is integers, or float32 without parameters ``p``."""
    x, weight, in_scale = q._integers, w.weight, q._parameters.scale
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(
            f"quantized::{name}: the last dimension of the input, of shape {tuple(x.shape)}, must equal the "
            f"{weight.shape[1]} columns of the weight, of shape {tuple(weight.shape)}"
        )
    rows = x.reshape(-1, x.shape[-1])
    if w._is_symmetric:
        multiplier, bias = w.factors(in_scale, p.scale if p else 1.0)
        y = _f._int8_linear(
            rows,
            weight._integers,
            multiplier,
            bias,
            q._parameters.zero_point,
            p.zero_point if p else 0,
            relu,
            INTEGERS[p.dtype].dtype if p else _C.float32,
        )
    else:
        sums = _f.matmul(rows.double() - q._parameters.zero_point, _centred(weight).t())
        y = _finished(sums, w, p, in_scale, relu, 1)
    return y.reshape(*x.shape[:-1], weight.shape[0])


def _linear_op(name: str, relu: bool) -> Callable:
    def call(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
        q = _check(X, name)
        p = Parameters(q.dtype, float(Y_scale_i), int(Y_zero_point_i))
        return wrap(_linear(name, q, W_prepack, p, relu), p)

    call.__name__ = call.__qualname__ = name
    return call


def _then(name: str, f: Callable) -> Callable:
    """Returns a linear layer followed by a function, computed before the result is quantised."""

    def call(X: Any, W_prepack: Any, output_scale: float, output_zero_point: int, *args: Any) -> Any:
        q = _check(X, name)
        y = f(_linear(name, q, W_prepack, None, False), *args)
        return requantized(y, Parameters(q.dtype, float(output_scale), int(output_zero_point)))

    call.__name__ = call.__qualname__ = name
    return call


def dynamically_quantized(x: Tensor, reduce_range: bool) -> QuantizedTensor:
    """Returns ``x`` quantised with the range of its elements."""
    low, high = (float(t) for t in _f.aminmax(x)) if x.numel() else (0.0, 0.0)
    scale, zero_point = choose_parameters(low, high, INTEGERS[quint8], reduce_range)
    parameters = Parameters(quint8, scale, zero_point)
    return wrap(parameters.quantize_input(x), parameters)


def _check_float(x: Any, name: str) -> Tensor:
    if is_quantized(x) or x.dtype != _C.float32:
        raise RuntimeError(f"quantized::{name}: expected a float32 input, got {x.dtype}")
    return x.detach()


def _linear_dynamic_op(name: str, relu: bool) -> Callable:
    def call(X: Any, W_prepack: Any, reduce_range: bool = False) -> Any:
        x = _check_float(X, name)
        return _linear(name, dynamically_quantized(x, reduce_range), W_prepack, None, relu)

    call.__name__ = call.__qualname__ = name
    return call


def _half_op(name: str, relu: bool) -> Callable:
    def call(X: Any, W_prepack: Any) -> Any:
        y = _nn().linear(_check_float(X, name), W_prepack.weight.float(), W_prepack.bias_)
        return y.relu() if relu else y

    call.__name__ = call.__qualname__ = name
    return call


def _tuple(x: Any, rank: int) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,) * rank


def _conv_prepack(rank: int, transposed: bool) -> Callable:
    name = f"conv{'_transpose' * transposed}{rank}d_prepack"

    def call(weight: Any, bias: Any, stride: Any, padding: Any, *rest: Any) -> ConvPackedParams:
        output_padding = rest[0] if transposed else 0
        dilation, groups = rest[-2], rest[-1]
        if weight.dim() != rank + 2:
            raise RuntimeError(
                f"quantized::{name}: the weight must have {rank + 2} dimensions, got shape "
                f"{tuple(weight.shape)}"
            )
        return ConvPackedParams(
            weight,
            bias,
            stride=_tuple(stride, rank),
            padding=_tuple(padding, rank),
            output_padding=_tuple(output_padding, rank),
            dilation=_tuple(dilation, rank),
            groups=groups,
            transposed=transposed,
        )

    call.__name__ = call.__qualname__ = name
    return call


def _conv(
    name: str, rank: int, q: QuantizedTensor, w: ConvPackedParams, p: Parameters | None, relu: bool
) -> Any:
    """Computes a convolution; the result is integers, or float32 without parameters ``p``."""
    g, x = w.geometry, q._integers
    if x.dim() != rank + 2:
        raise RuntimeError(
            f"quantized::{name}: expected a batched input of {rank + 2} dimensions, got shape "
            f"{tuple(x.shape)}"
        )
    zero = q._parameters.zero_point
    if not w._is_symmetric:
        return _finished(_real_sums(x.double() - zero, w, rank), w, p, q._parameters.scale, relu, 1)
    if g["transposed"] or rank == 3:
        return _finished(_sums(x, zero, w, rank), w, p, q._parameters.scale, relu, 1)
    line = rank == 1
    weight = w.weight._integers.unsqueeze(2) if line else w.weight._integers
    x = x.unsqueeze(2) if line else x.contiguous(memory_format=_C.channels_last)
    stride, padding, dilation = (
        ((neutral, *g[key]) if line else g[key])
        for key, neutral in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    multiplier, bias = w.factors(q._parameters.scale, p.scale if p else 1.0)
    y = _f._int8_conv2d(
        x,
        weight,
        multiplier,
        bias,
        q._parameters.zero_point,
        p.zero_point if p else 0,
        relu,
        INTEGERS[p.dtype].dtype if p else _C.float32,
        stride,
        padding,
        dilation,
        g["groups"],
    )
    return y.squeeze(2) if line else y


def _real_sums(x: Tensor, w: PackedParams, rank: int) -> Tensor:
    """Returns sums of products with a weight that has zero points, in float64, which holds them exactly."""
    g = w.geometry
    f = getattr(_nn(), f"conv{'_transpose' * g['transposed']}{rank}d")
    more = (g["output_padding"],) if g["transposed"] else ()
    order = (g["groups"], g["dilation"]) if g["transposed"] else (g["dilation"], g["groups"])
    return f(x, _centred(w.weight), None, g["stride"], g["padding"], *more, *order)


def _sums(x: Tensor, zero: int, w: PackedParams, rank: int) -> Tensor:
    """Returns the int32 sums of a transposed convolution, or of one of three dimensions."""
    g, weight = w.geometry, w.weight._integers
    stride, padding, dilation = (list(g[k]) for k in ("stride", "padding", "dilation"))
    if g["transposed"]:
        x, weight, padding = _spread(x, zero, weight, g)
        stride = [1] * rank
    if rank == 3:
        return _volume_sums(x, zero, weight, (stride, padding, dilation), g["groups"])
    if rank == 1:
        x, weight = x.unsqueeze(2), weight.unsqueeze(2)
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    sums = _plane_sums(x, zero, weight, (stride, padding, dilation), g["groups"])
    return sums.squeeze(2) if rank == 1 else sums


def _plane_sums(x: Tensor, zero: int, weight: Tensor, geometry: tuple, groups: int) -> Tensor:
    x = x.contiguous(memory_format=_C.channels_last)
    return _f._int8_conv2d(x, weight, None, None, zero, 0, False, _C.int32, *geometry, groups)


def _volume_sums(x: Tensor, zero: int, weight: Tensor, geometry: tuple, groups: int) -> Tensor:
    """Returns the sums of a convolution of volumes: those of planes, for each slice of the weight."""
    strides, paddings, dilations = geometry
    x = _f.constant_pad_nd(x, [0, 0, 0, 0, paddings[0], paddings[0]], zero)
    batch, channels, depth, *plane = x.shape
    reach = dilations[0] * (weight.shape[2] - 1)
    depth_out = (depth - reach - 1) // strides[0] + 1
    sums = None
    for k in range(weight.shape[2]):
        first = k * dilations[0]
        slices = x[:, :, first : first + (depth_out - 1) * strides[0] + 1 : strides[0]]
        planes = slices.transpose(1, 2).reshape(batch * depth_out, channels, *plane)
        in_plane = tuple(n[1:] for n in geometry)
        products = _plane_sums(planes, zero, weight[:, :, k].contiguous(), in_plane, groups)
        sums = products if sums is None else sums + products
    return sums.unflatten(0, (batch, depth_out)).transpose(1, 2)  # type: ignore[union-attr]


def _spread(x: Tensor, zero: int, weight: Tensor, g: dict) -> tuple[Tensor, Tensor, list[int]]:
    """Returns the input, weight and padding of the convolution that computes a transposed one.

    The elements of its input are ``stride`` apart, and its weight is mirrored.
    """
    rank, groups = weight.dim() - 2, g["groups"]
    kernel, stride, dilation = weight.shape[2:], g["stride"], g["dilation"]
    sizes = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], stride)]
    spread = _f.full([*x.shape[:2], *sizes], zero, dtype=x.dtype)
    spread[(..., *(slice(None, None, s) for s in stride))] = x
    around = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, g["padding"])]
    sides = [(a, a + extra) for a, extra in zip(around, g["output_padding"])]
    pads = [n for pair in reversed(sides) for n in pair]
    spread = _f.constant_pad_nd(spread, pads, zero)
    mirrored = weight.flip(list(range(2, rank + 2)))
    inputs, outputs = weight.shape[0] // groups, weight.shape[1]
    mirrored = mirrored.reshape(groups, inputs, outputs, *kernel).transpose(1, 2)
    return spread, mirrored.reshape(groups * outputs, inputs, *kernel).contiguous(), [0] * rank


def _conv_op(name: str, rank: int, relu: bool) -> Callable:
    def call(qx: Any, packed_weight: Any, *args: Any, **kwargs: Any) -> Any:
        q = _check(qx, name)
        scale = kwargs.get("output_scale", args[-2] if len(args) >= 2 else None)
        zero_point = kwargs.get("output_zero_point", args[-1] if args else None)
        p = Parameters(q.dtype, float(scale), int(zero_point))  # type: ignore[arg-type]
        return wrap(_conv(name, rank, q, packed_weight, p, relu), p)

    call.__name__ = call.__qualname__ = name
    return call


def _conv_dynamic_op(name: str, rank: int) -> Callable:
    def call(qx: Any, packed_weight: Any, reduce_range: bool = False) -> Any:
        x = _check_float(qx, name)
        return _conv(name, rank, dynamically_quantized(x, reduce_range), packed_weight, None, False)

    call.__name__ = call.__qualname__ = name
    return call


def _conv_add(name: str, relu: bool) -> Callable:
    def call(qx: Any, qaccum: Any, packed_weight: Any, output_scale: float, output_zero_point: int) -> Any:
        q, added = _check(qx, name), _check(qaccum, name)
        y = _conv(name, 2, q, packed_weight, None, False) + real(added)
        p = Parameters(q.dtype, float(output_scale), int(output_zero_point))
        return requantized(y.relu() if relu else y, p)

    call.__name__ = call.__qualname__ = name
    return call


# ---- embeddings


class EmbeddingPackedParams(PackedParams):
    """The table of an embedding, quantised by rows."""

    kind = "embedding_bag"

    def __init__(self, weight: Any) -> None:
        if not is_quantized(weight) or weight.dtype not in (quint8, quint4x2) or weight.dim() != 2:
            raise RuntimeError(
                "quantized::embedding_bag_prepack: expected a matrix of dtype quint8 or "
                "quint4x2, quantized per "
                f"channel, got {weight.dtype} of shape {tuple(weight.shape)}"
            )
        self.weight, self.bias_, self.geometry = weight, None, {}

    def unpack(self) -> Any:
        return self.weight

    def rows(self, indices: Tensor) -> Tensor:
        """Returns the rows with these indices as float32."""
        p, flat = self.weight._parameters, indices.reshape(-1)
        if p.axis is None:
            return p.dequantize(self.weight._integers[flat])
        scale, zero_point = p.scale.float()[flat, None], p.zero_point.float()[flat, None]
        return self.weight._integers[flat].float() * scale - zero_point * scale

    def __reduce__(self) -> tuple:
        return EmbeddingPackedParams, (self.weight,)


def embedding_bag_prepack(weight: Any) -> EmbeddingPackedParams:
    """Packs the table of an embedding."""
    return EmbeddingPackedParams(weight)


def embedding_byte(weight: Any, indices: Tensor, pruned_weights: bool = False) -> Tensor:
    """Returns the rows of a quantised table."""
    return weight.rows(indices).reshape(*indices.shape, -1)


def _bag(rows_of: Callable[[Any, Tensor], Tensor], name: str) -> Callable:
    """Returns the operator that sums (mode 0) or averages (1) the rows ``rows_of(table, indices)``."""

    def call(
        weight: Any,
        indices: Tensor,
        offsets: Any = None,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        pruned_weights: bool = False,
        per_sample_weights: Any = None,
        compressed_indices_mapping: Any = None,
        include_last_offset: bool = False,
    ) -> Tensor:
        if pruned_weights or compressed_indices_mapping is not None:
            raise NotImplementedError(f"quantized::{name}: pruned tables are not supported")
        if mode not in (0, 1):
            raise NotImplementedError(f"quantized::{name}: mode must be 0 (sum) or 1 (mean), got {mode}")
        rows = rows_of(weight, indices)
        places = _f.arange(rows.shape[0]).reshape(indices.shape)
        return _nn().embedding_bag(
            places,
            rows,
            offsets,
            mode="sum" if mode == 0 else "mean",
            per_sample_weights=per_sample_weights,
            include_last_offset=include_last_offset,
        )

    call.__name__ = call.__qualname__ = name
    return call


embedding_bag_byte = _bag(lambda weight, indices: weight.rows(indices), "embedding_bag_byte")


def _row_parameters(weight: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    low, high = _f.aminmax(weight.float(), dim=-1)
    scale = (high - low) / steps
    safe = _f.where(scale == 0, _f.ones_like(scale), scale)
    integers = ((weight.float() - low[..., None]) / safe[..., None]).round().clamp(0, steps).to(_C.uint8)
    return integers, scale, low


def embedding_bag_byte_prepack(weight: Any) -> Tensor:
    """Returns rows of bytes, each followed by its scale and its smallest value as float32."""
    if is_quantized(weight):
        p = weight._parameters
        integers, scale, low = weight._integers, p.scale.float(), -p.zero_point.float() * p.scale.float()
    else:
        integers, scale, low = _row_parameters(weight, 255)
    tail = _f.stack([scale, low], dim=-1).contiguous().view(_C.uint8)
    return _f.cat([integers, tail], dim=-1)


def embedding_bag_byte_unpack(weight: Tensor) -> Tensor:
    """Returns the numbers of rows that ``embedding_bag_byte_prepack`` made."""
    tail = weight[..., -8:].contiguous().view(_C.float32)
    return weight[..., :-8].float() * tail[..., :1] + tail[..., 1:]


def embedding_bag_4bit_prepack(weight: Any, *options: Any) -> Tensor:
    """Returns rows of 4-bit integers, each followed by its scale and its smallest value as float16."""
    if is_quantized(weight):
        p = weight._parameters
        integers, scale, low = weight._integers, p.scale.float(), -p.zero_point.float() * p.scale.float()
        scale, low = scale.half(), low.half()
    else:
        low = weight.float().amin(-1).half()
        scale = ((weight.float().amax(-1) - low.float()) / 15).half()
        safe = _f.where(scale == 0, _f.ones_like(scale), scale).float()
        integers = (
            ((weight.float() - low.float()[..., None]) / safe[..., None]).round().clamp(0, 15).to(_C.uint8)
        )
    tail = _f.stack([scale, low], dim=-1).contiguous().view(_C.uint8)
    return _f.cat([packed4(integers), tail], dim=-1)


def embedding_bag_4bit_unpack(weight: Tensor) -> Tensor:
    """Returns the numbers of rows that ``embedding_bag_4bit_prepack`` made."""
    tail = weight[..., -4:].contiguous().view(_C.float16).float()
    columns = (weight.shape[-1] - 4) * 2
    return unpacked4(weight[..., :-4], columns).float() * tail[..., :1] + tail[..., 1:]


def _rowwise(unpack: Callable, name: str) -> Callable:
    return _bag(lambda weight, indices: unpack(weight[indices.reshape(-1)]), name)


# ---- cells of recurrent layers


def lstm_cell(input: Tensor, hx: Sequence[Tensor], w_ih: Any, w_hh: Any, *biases: Any) -> tuple:
    """One step of an LSTM whose products are quantised."""
    gates = _cell_product(w_ih, input) + _cell_product(w_hh, hx[0])
    return _lstm_step(gates, hx[1])


def _cell_product(packed: Any, x: Tensor, reduce_range: bool = True) -> Tensor:
    if isinstance(packed, HalfPackedParams):
        return TABLE["linear_dynamic_fp16"](x, packed)
    return TABLE["linear_dynamic"](x, packed, reduce_range)


def _lstm_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = gates.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_step(from_input: Tensor, from_state: Tensor, h: Tensor) -> Tensor:
    ir, iz, inew = from_input.chunk(3, -1)
    hr, hz, hnew = from_state.chunk(3, -1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (inew + r * hnew).tanh()
    return (h - n) * z + n


def gru_cell(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, *biases: Any) -> Tensor:
    """One step of a GRU whose products are quantised."""
    return _gru_step(_cell_product(w_ih, input), _cell_product(w_hh, hx), hx)


def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, *biases: Any) -> Tensor:
    return (_cell_product(w_ih, input) + _cell_product(w_hh, hx)).tanh()


def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, *biases: Any) -> Tensor:
    return (_cell_product(w_ih, input) + _cell_product(w_hh, hx)).relu()


# ---- the table of names


@functools.cache
def _elementwise() -> dict[str, Callable]:
    F = _nn()
    table: dict[str, Callable] = {}
    for base, f in (("add", _f.add), ("mul", _f.mul)):
        for relu in (False, True):
            suffix = "_relu" * relu
            for name in (
                f"{base}{suffix}",
                f"{base}{suffix}_out",
                f"{base}_scalar{suffix}",
                f"{base}_scalar{suffix}_out",
            ):
                table[name] = _binary(name, f, relu)
    for relu in (False, True):
        for rank in ("", "1d", "2d", "3d"):
            name = f"batch_norm{rank}{'_relu' * relu}"
            table[name] = _scaled(name, _norm, 6, relu)
    scaled = {
        "hardswish": (F.hardswish, 1),
        "sigmoid": (_f.sigmoid, 1),
        "elu": (_elu, 1),
        "celu": (F.celu, 1),
        "leaky_relu": (_leaky, 3),
        "prelu": (F.prelu, 2),
        "softmax": (F.softmax, 2),
        "dropout": (_dropout, 1),
    }
    for name, (f, at) in scaled.items():
        table[name] = _scaled(name, f, at)
    table["layer_norm"] = _scaled(
        "layer_norm", lambda x, shape, w, b, eps: F.layer_norm(x, shape, w, b, eps), 5
    )
    table["group_norm"] = _scaled("group_norm", lambda x, n, w, b, eps: F.group_norm(x, n, w, b, eps), 5)
    table["instance_norm"] = _scaled(
        "instance_norm", lambda x, w, b, eps: F.instance_norm(x, None, None, w, b, True, 0.0, eps), 4
    )
    return table


def _products() -> dict[str, Callable]:
    table: dict[str, Callable] = {}
    for relu in (False, True):
        s = "_relu" * relu
        table[f"linear{s}"] = _linear_op(f"linear{s}", relu)
        table[f"linear{s}_dynamic"] = _linear_dynamic_op(f"linear{s}_dynamic", relu)
        table[f"linear{s}_dynamic_fp16"] = _half_op(f"linear{s}_dynamic_fp16", relu)
        table[f"conv2d_add{s}"] = _conv_add(f"conv2d_add{s}", relu)
        for rank in (1, 2, 3):
            table[f"conv{rank}d{s}"] = _conv_op(f"conv{rank}d{s}", rank, relu)
    for rank in (1, 2, 3):
        for transposed in (False, True):
            base = f"conv{'_transpose' * transposed}{rank}d"
            table[f"{base}_prepack"] = _conv_prepack(rank, transposed)
            table[f"{base}_unpack"] = _unpack
            table[f"{base}_dynamic"] = _conv_dynamic_op(f"{base}_dynamic", rank)
            if transposed:
                table[base] = _conv_op(base, rank, False)
    for what in ("stride", "padding", "output_padding", "dilation", "groups", "transpose"):
        for base in ("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d"):
            table[f"{base}_{what}"] = _asked(what)
    return table


def _asked(what: str) -> Callable:
    return lambda packed_weights: getattr(packed_weights, what)()


TABLE: dict[str, Callable] = {
    **_products(),
    "cat": cat,
    "cat_relu": functools.partial(cat, relu=True),
    "clamp": clamp,
    "matmul": matmul,
    "max_pool1d": _max_pool(1),
    "max_pool2d": _max_pool(2),
    "threshold": threshold,
    "relu6": relu6,
    "linear_prepack": linear_prepack,
    "linear_prepack_fp16": linear_prepack_fp16,
    "linear_unpack": _unpack,
    "linear_unpack_fp16": _unpack,
    "linear_leaky_relu": _then("linear_leaky_relu", _leaky),
    "linear_tanh": _then("linear_tanh", _f.tanh),
    "embedding_bag_prepack": embedding_bag_prepack,
    "embedding_bag_unpack": _unpack,
    "embedding_byte": embedding_byte,
    "embedding_4bit": embedding_byte,
    "embedding_bag_byte": embedding_bag_byte,
    "embedding_bag_4bit": embedding_bag_byte,
    "embedding_bag_byte_prepack": embedding_bag_byte_prepack,
    "embedding_bag_byte_unpack": embedding_bag_byte_unpack,
    "embedding_bag_4bit_prepack": embedding_bag_4bit_prepack,
    "embedding_bag_4bit_unpack": embedding_bag_4bit_unpack,
    "embedding_bag_byte_rowwise_offsets": _rowwise(
        embedding_bag_byte_unpack, "embedding_bag_byte_rowwise_offsets"
    ),
    "embedding_bag_4bit_rowwise_offsets": _rowwise(
        embedding_bag_4bit_unpack, "embedding_bag_4bit_rowwise_offsets"
    ),
    "quantized_lstm_cell_dynamic": lstm_cell,
    "quantized_gru_cell_dynamic": gru_cell,
    "quantized_rnn_tanh_cell_dynamic": rnn_tanh_cell,
    "quantized_rnn_relu_cell_dynamic": rnn_relu_cell,
}


@functools.cache
def find(name: str) -> Any:
    """Returns the function of ``ops.quantized`` with this name, None if there is none."""
    function = TABLE.get(name) or _elementwise().get(name)
    if function is None:
        return None
    call = recordable(function)
    call.__module__, call.__name__, call.__qualname__ = __name__, name, name
    return call


def names() -> list[str]:
    """Returns the names of all functions of ``ops.quantized``."""
    return sorted({*TABLE, *_elementwise()})


def __getattr__(name: str) -> Any:
    """Finds the functions by name, as pickled graphs refer to them."""
    function = None if name.startswith("__") else find(name)
    if function is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return function
