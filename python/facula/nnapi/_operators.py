"""The form of each operator in NNAPI: a function of the serializer, the node and its arguments, by name of
the operator.

Images have their channels last, as NNAPI's drivers prefer; other operators bring them to PyTorch's order
where they need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import _C
from ._codes import Code, Type
from ._serialize import Dequantized, QuantizedConstant, Serializer, Value

Tensor = _C.Tensor
FORMS: dict[str, Callable] = {}


def form(*names: str) -> Callable:
    def register(f: Callable) -> Callable:
        FORMS.update(dict.fromkeys(names, f))
        return f

    return register


def _like(e: Serializer, node: Any, v: Value, **changes: Any) -> Value:
    """Returns the description of a node's result: its sizes, and a value's order of dimensions."""
    return replace(v, sizes=e.sizes(node), **changes)


def _each(x: Any, n: int = 2) -> list[int]:
    values = list(x) if isinstance(x, (list, tuple)) else [x]
    return [int(v) for v in (values * n if len(values) == 1 else values)]


# ---- quantisation


@form("quantize_per_tensor")
def _quantize(
    e: Serializer,
    node: Any,
    x: Any,
    scale: float,
    zero_point: int,
    low: int,
    high: int,
    dtype: Any = None,
    **_: Any,
) -> Any:
    if high - low != 255:
        raise e.unsupported(node, f"integers from {low} to {high}; expected are 256 of them")
    zero_point = int(zero_point) - int(low)
    if isinstance(x, Value) and x.type is Type.TENSOR_QUANT8_ASYMM:
        return x
    if isinstance(x, Dequantized) and (x.value.scale, x.value.zero_point) == (float(scale), zero_point):
        return x.value
    if isinstance(x, Tensor):
        integers = _C.functions.clamp(_C.functions.round(x / scale) + zero_point, 0, 255).to(_C.uint8)
        return QuantizedConstant(integers, _C.tensor(scale), _C.tensor(zero_point), None)
    v = e.value(x)
    result = replace(v, type=Type.TENSOR_QUANT8_ASYMM, scale=float(scale), zero_point=zero_point)
    return e.apply(Code.QUANTIZE, [v.operand], result)


@form("dequantize_per_tensor")
def _dequantize(
    e: Serializer,
    node: Any,
    x: Any,
    scale: Any,
    zero_point: Any,
    low: int,
    high: int,
    dtype: Any = None,
    **_: Any,
) -> Any:
    if isinstance(x, Tensor):
        return QuantizedConstant(x, _C.tensor(float(scale)), _C.tensor(int(zero_point)), None)
    return x if isinstance(x, QuantizedConstant) else Dequantized(x)


@form("dequantize_per_channel")
def _dequantize_channels(
    e: Serializer,
    node: Any,
    x: Any,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    low: int,
    high: int,
    dtype: Any = None,
    **_: Any,
) -> Any:
    zero_points = _C.functions.zeros_like(scales) if zero_points is None else zero_points
    return QuantizedConstant(x, scales, zero_points, int(axis))


def _eight_bit_weight(
    e: Serializer, node: Any, w: QuantizedConstant, order: list[int], axis: int
) -> tuple[int, Tensor]:
    """Adds a weight with its dimensions in another order; returns its operand and its scales. ``axis``: the
    dimension of output channels in that order."""
    if w.axis is None:
        low = -128 if w.integers.dtype is _C.int8 else 0
        integers = (w.integers.to(_C.int32) - low).to(_C.uint8).permute(order)
        zero = int(w.zero_points) - low
        return e.constant(integers, Type.TENSOR_QUANT8_ASYMM, float(w.scales), zero), w.scales
    if w.integers.dtype is not _C.int8 or int(w.zero_points.abs().max()) or order[axis] != w.axis:
        raise e.unsupported(
            node, "weights with a scale for each channel are symmetric int8, along the output channels"
        )
    operand = e.constant(w.integers.permute(order), Type.TENSOR_QUANT8_SYMM_PER_CHANNEL)
    e.channel_scales(operand, axis, w.scales)
    return operand, w.scales


def _parameters(
    e: Serializer, node: Any, x: Any, w: Any, b: Any, order: list[int], axis: int, eight: bool
) -> list[int]:
    """Adds the weight and the bias of a product or convolution; returns their operands."""
    channels = (w.integers if isinstance(w, QuantizedConstant) else w).shape[order[axis]]
    if isinstance(b, (QuantizedConstant, Dequantized)):
        if isinstance(b, Dequantized):
            raise e.unsupported(node, "a bias that is computed")
        b = b.real()
    bias = _C.functions.zeros(channels) if b is None else b.float()
    if not eight:
        w = w.real() if isinstance(w, QuantizedConstant) else w
        return [e.constant(w.float().permute(order)), e.constant(bias)]
    operand, scales = _eight_bit_weight(e, node, w, order, axis)
    scale = scales.double() * x.value.scale
    integers = _C.functions.clamp(_C.functions.round(bias.double() / scale), -(2.0**31), 2.0**31 - 1).to(
        _C.int32
    )
    return [operand, e.constant(integers, Type.TENSOR_INT32, float(scale) if scale.dim() == 0 else 0.0)]


def _need_constants(e: Serializer, node: Any, *tensors: Any) -> None:
    if any(not isinstance(t, (Tensor, QuantizedConstant, type(None))) for t in tensors):
        raise e.unsupported(node, "weights and biases have to be constants")


# ---- convolutions and products


@form("conv2d")
def _conv2d(
    e: Serializer,
    node: Any,
    x: Any,
    w: Any,
    b: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    _need_constants(e, node, w, b)
    if isinstance(padding, str):
        raise e.unsupported(node, f"padding={padding!r}; numbers are supported")
    stride, (ph, pw), dilation = _each(stride), _each(padding), _each(dilation)
    eight = e.in_eight_bits(node, x, w)
    v = e.image(x.value if eight else e.value(x))
    shape = (w.integers if isinstance(w, QuantizedConstant) else w).shape
    depthwise = groups > 1 and shape[1] == 1 and groups == v.sizes[1]
    order, axis = ([1, 2, 3, 0], 3) if depthwise else ([0, 2, 3, 1], 0)
    if not depthwise and groups > 1 and dilation != [1, 1]:
        raise e.unsupported(node, "a dilated convolution of groups")
    through: list[Any] = []
    if not eight and (norm := e.normalisation(node)):
        *through, factor, less, more = norm
        w = (w.real() if isinstance(w, QuantizedConstant) else w) * factor.reshape(-1, 1, 1, 1)
        b = (0 - less if b is None else b - less) * factor + more
    parameters = _parameters(e, node, x, w, b, order, axis, eight)
    numbers = [e.integer(n) for n in (pw, pw, ph, ph, stride[1], stride[0])]
    extra = [e.integer(shape[0] // groups)] if depthwise else [e.integer(groups)] if groups > 1 else []
    code = Code.DEPTHWISE_CONV_2D if depthwise else Code.GROUPED_CONV_2D if groups > 1 else Code.CONV_2D
    inputs = [v.operand, *parameters, *numbers, *extra]
    fuse_at = len(inputs)
    inputs.append(e.flag(False))
    if dilation != [1, 1]:
        inputs += [e.integer(dilation[1]), e.integer(dilation[0])]
    return e.give(node, code, inputs, _like(e, node, v), fuse_at=fuse_at, eight_bits=eight, through=through)


@form("convolution_backward_input")
def _conv_transpose2d(
    e: Serializer, node: Any, x: Any, w: Any, size: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    _need_constants(e, node, w)
    weight = w.real() if isinstance(w, QuantizedConstant) else w
    if groups != 1 or _each(dilation) != [1, 1]:
        raise e.unsupported(node, "groups and dilation")
    stride, (ph, pw) = _each(stride), _each(padding)
    v = e.image(e.value(x))
    for d in (2, 3):
        n, m = v.sizes[d], e.sizes(node)[d]
        if isinstance(n, int) and m != (n - 1) * stride[d - 2] + weight.shape[d] - 2 * (ph, pw)[d - 2]:
            raise e.unsupported(node, "output_padding")
    parameters = _parameters(e, node, x, weight, None, [1, 2, 3, 0], 0, False)
    inputs = [
        v.operand,
        *parameters,
        *(e.integer(n) for n in (pw, pw, ph, ph, stride[1], stride[0])),
        e.flag(False),
    ]
    return e.give(node, Code.TRANSPOSE_CONV_2D, inputs, _like(e, node, v), fuse_at=len(inputs) - 1)


@form("linear")
def _linear(e: Serializer, node: Any, x: Any, w: Any, b: Any = None) -> Any:
    _need_constants(e, node, w, b)
    eight = e.in_eight_bits(node, x, w)
    v = e.plain(x.value if eight else e.value(x))
    parameters = _parameters(e, node, x, w, b, [0, 1], 0, eight)
    sizes, inputs = e.sizes(node), [v.operand, *parameters]
    if len(sizes) == 2:
        return e.give(node, Code.FULLY_CONNECTED, inputs, _like(e, node, v), fuse_at=3, eight_bits=eight)
    if eight:  # the result is a matrix, which a view follows
        return _linear(e, node, e.value(x), w, b)
    if any(not isinstance(n, int) for n in sizes):
        raise e.unsupported(
            node, "other than 2 dimensions, and sizes that are fixed when the model is loaded"
        )
    rows = 1
    for n in sizes[:-1]:
        rows *= int(n)
    matrix = e.apply(Code.FULLY_CONNECTED, [*inputs, e.integer(0)], replace(v, sizes=(rows, sizes[-1])))
    return e.apply(Code.RESHAPE, [matrix.operand, e.integers([int(n) for n in sizes])], _like(e, node, v))


@form("addmm")
def _addmm(e: Serializer, node: Any, b: Any, x: Any, w: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    _need_constants(e, node, w, b)
    if beta != 1 or alpha != 1 or isinstance(w, QuantizedConstant):
        raise e.unsupported(node, "alpha, beta and 8-bit weights; linear has them")
    return _linear(e, node, x, w.t(), b)


# ---- pools and sizes of images


def _pool(
    e: Serializer, node: Any, code: Code, x: Any, kernel: Any, stride: Any, padding: list[int], moved: bool
) -> Any:
    kernel = _each(kernel)
    stride = _each(stride) if stride not in (None, ()) and stride != [] else kernel
    eight = e.in_eight_bits(node, x, fused=False)
    v = e.image(x.value if eight else e.value(x))
    if moved and any(padding):  # the mean of a window counts padding, which NNAPI's does not
        sizes = (*v.sizes[:2], _plus(v.sizes[2], 2 * padding[0]), _plus(v.sizes[3], 2 * padding[1]))
        pads = [0, 0, padding[0], padding[0], padding[1], padding[1], 0, 0]
        v = e.apply(Code.PAD, [v.operand, e.integers(pads, 2)], replace(v, sizes=sizes))
        padding = [0, 0]
    ph, pw = padding
    numbers = (pw, pw, ph, ph, stride[1], stride[0], kernel[1], kernel[0])
    inputs = [v.operand, *(e.integer(n) for n in numbers), e.integer(0), e.flag(False)]
    return e.give(node, code, inputs, _like(e, node, v), eight_bits=eight)


def _plus(n: Any, more: int) -> Any:
    return n + more if isinstance(n, int) else f"({n}) + {more}"


@form("max_pool2d", "max_pool2d_taps")
def _max_pool2d(
    e: Serializer,
    node: Any,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    if ceil_mode or _each(dilation) != [1, 1]:
        raise e.unsupported(node, "ceil_mode and dilation")
    if "taps" in node.target._opname:
        values = next((n for n in node.users if n.args[1] == 0), None)
        if any(n.args[1] == 1 for n in node.users) or values is None:
            raise e.unsupported(node, "the positions of maxima")
        return [_pool(e, values, Code.MAX_POOL_2D, x, kernel, stride, _each(padding), False)]
    return _pool(e, node, Code.MAX_POOL_2D, x, kernel, stride, _each(padding), False)


@form("avg_pool2d")
def _avg_pool2d(
    e: Serializer,
    node: Any,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:
    if ceil_mode or divisor_override is not None:
        raise e.unsupported(node, "ceil_mode and divisor_override")
    return _pool(e, node, Code.AVERAGE_POOL_2D, x, kernel, stride, _each(padding), bool(count_include_pad))


@form("adaptive_avg_pool2d")
def _adaptive(e: Serializer, node: Any, x: Any, size: Any) -> Any:
    sizes, wanted = e.sizes(node.args[0]), e.sizes(node)[-2:]
    if wanted == (1, 1):
        return _mean(e, node, x, [2, 3], True)
    if any(not isinstance(n, int) or n % w for n, w in zip(sizes[-2:], wanted)):
        raise e.unsupported(node, f"an output of {wanted} for {sizes[-2:]}; whole windows are supported")
    kernel = [n // w for n, w in zip(sizes[-2:], wanted)]
    return _pool(e, node, Code.AVERAGE_POOL_2D, x, kernel, kernel, [0, 0], False)


@form("_resample")
def _resample(
    e: Serializer, node: Any, x: Any, dim: int, size: Any, factor: float, mode: str, align: bool
) -> Any:
    """A resize of one dimension; of both if the other one follows."""
    last, (user, *others) = node, [*node.users, None]
    if user is not None and not others[:-1] and user.target is node.target and user.args[4:] == node.args[4:]:
        last = user
    v, sizes = e.image(e.value(x)), e.sizes(last)
    if mode not in ("nearest", "linear") or any(not isinstance(n, int) for n in (*sizes[2:], *v.sizes[2:])):
        raise e.unsupported(node, f"mode {mode!r}; nearest and bilinear are supported, for fixed sizes")
    for n in (node, last):
        if n.args[3] and abs(float(n.args[0].meta["sizes"][n.args[1]]) * n.args[3] - n.args[2]) > 1e-6:
            raise e.unsupported(n, f"a factor of {n.args[3]} that is not the ratio of the sizes")
    inputs = [v.operand, e.integer(int(sizes[3])), e.integer(int(sizes[2])), e.flag(False)]
    if mode == "linear":
        inputs += [e.flag(bool(align)), e.flag(not align)]
    code = Code.RESIZE_NEAREST_NEIGHBOR if mode == "nearest" else Code.RESIZE_BILINEAR
    return e.give(node, code, inputs, replace(v, sizes=sizes), through=[last] if last is not node else [])


# ---- pointwise


def _unary(code: Code) -> Callable:
    def compute(e: Serializer, node: Any, x: Any) -> Any:
        eight = code is Code.RELU and e.in_eight_bits(node, x, fused=False)
        v = x.value if eight else e.value(x)
        return e.give(node, code, [v.operand], _like(e, node, v), eight_bits=eight)

    return compute


FORMS.update(
    {
        name: _unary(code)
        for name, code in {
            "relu": Code.RELU,
            "relu_": Code.RELU,
            "relu6": Code.RELU6,
            "sigmoid": Code.LOGISTIC,
            "tanh": Code.TANH,
            "floor": Code.FLOOR,
            "abs": Code.ABS,
            "exp": Code.EXP,
            "log": Code.LOG,
            "neg": Code.NEG,
            "rsqrt": Code.RSQRT,
            "sqrt": Code.SQRT,
            "hardswish": Code.HARD_SWISH,
        }.items()
    }
)


@form("silu")
def _silu(e: Serializer, node: Any, x: Any) -> Any:
    v = e.value(x)
    gate = e.apply(Code.LOGISTIC, [v.operand], v)
    return e.give(node, Code.MUL, [v.operand, gate.operand], v, fuse_at=2)


@form("hardsigmoid")
def _hardsigmoid(e: Serializer, node: Any, x: Any) -> Any:
    v = e.value(x)
    shifted = e.apply(Code.ADD, [v.operand, e.value(3.0).operand, e.integer(3)], v)
    return e.give(node, Code.MUL, [shifted.operand, e.value(1 / 6).operand], v, fuse_at=2)


@form("elu")
def _elu(e: Serializer, node: Any, x: Any, alpha: float = 1.0) -> Any:
    v = e.value(x)
    return e.give(node, Code.ELU, [v.operand, e.number(alpha)], v)


@form("clamp", "hardtanh")
def _clamp(e: Serializer, node: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    if node.target._opname == "hardtanh":
        low, high = -1 if low is None else low, 1 if high is None else high
    v = e.value(x)
    if (low, high) in ((0, 6), (-1, 1), (0, None)):
        code = {6: Code.RELU6, 1: Code.RELU1, None: Code.RELU}[high]
        return e.give(node, code, [v.operand], v)
    for code, limit in ((Code.MAXIMUM, low), (Code.MINIMUM, high)):
        if limit is not None:
            v = e.apply(code, [v.operand, e.value(float(limit)).operand], v)
    return v


def _aligned(e: Serializer, a: Any, b: Any) -> tuple[Value, Value]:
    """Returns two operands in one order of dimensions."""
    computed = [x for x in (a, b) if isinstance(x, (Value, Dequantized))]
    last = any((x.value if isinstance(x, Dequantized) else x).nhwc for x in computed)
    if not last:
        return e.value(a), e.value(b)

    def arranged(x: Any) -> Value:
        if isinstance(x, (Tensor, QuantizedConstant)):
            t = x if isinstance(x, Tensor) else x.real()
            if t.numel() > 1:
                t = t.reshape([1] * (4 - t.dim()) + list(t.shape)).permute(0, 2, 3, 1)
            return e.value(t)
        v = e.value(x)
        if len(v.sizes) == 4:
            return e.image(v)
        return v if all(n == 1 for n in v.sizes) else e.plain(v)

    pair = arranged(a), arranged(b)
    if all(
        v.nhwc
        or len(v.sizes) < 4
        and all(n == 1 for n in v.sizes)
        or isinstance(x, (Tensor, QuantizedConstant))
        for v, x in zip(pair, (a, b))
    ):
        return pair
    return e.plain(e.value(a)), e.plain(e.value(b))


def _binary(code: Code, fused: bool) -> Callable:
    def compute(e: Serializer, node: Any, a: Any, b: Any, alpha: Any = 1, **options: Any) -> Any:
        if alpha != 1 or any(o is not None for o in options.values()):
            raise e.unsupported(node, "alpha and rounding modes")
        computed = [x for x in (a, b) if isinstance(x, Dequantized)]
        eight = len(computed) == 2 and code in (Code.ADD, Code.MUL) and e.in_eight_bits(node, a, b)
        if eight and a.value.sizes == b.value.sizes and a.value.nhwc == b.value.nhwc:
            v, w = a.value, b.value
        else:
            eight = False
            v, w = _aligned(e, a, b)
        like = _like(e, node, v, nhwc=v.nhwc or w.nhwc)
        inputs = [v.operand, w.operand]
        return e.give(node, code, inputs, like, fuse_at=2 if fused else None, eight_bits=eight)

    return compute


FORMS.update(
    {
        "add": _binary(Code.ADD, True),
        "add_": _binary(Code.ADD, True),
        "sub": _binary(Code.SUB, True),
        "mul": _binary(Code.MUL, True),
        "div": _binary(Code.DIV, True),
        "maximum": _binary(Code.MAXIMUM, False),
        "minimum": _binary(Code.MINIMUM, False),
    }
)


@form("rsub")
def _rsub(e: Serializer, node: Any, a: Any, b: Any, alpha: Any = 1) -> Any:
    return FORMS["sub"](e, node, b, a, alpha)


@form("_fused_multiply_add")
def _multiply_add(e: Serializer, node: Any, a: Any, b: Any, c: Any) -> Any:
    v, w = _aligned(e, a, b)
    sizes = _broadcast(v.sizes, w.sizes)
    product = e.apply(
        Code.MUL, [v.operand, w.operand, e.integer(0)], replace(v, sizes=sizes, nhwc=v.nhwc or w.nhwc)
    )
    return FORMS["add"](e, node, product, c)


def _broadcast(a: tuple, b: tuple) -> tuple:
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(m if n == 1 else n for m, n in zip(a, b))


@form("_leaky")
def _leaky(e: Serializer, node: Any, x: Any, w: Any) -> Any:
    _need_constants(e, node, w)
    v, slope = _aligned(e, e.value(x), w)
    return e.give(node, Code.PRELU, [v.operand, slope.operand], v)


@form("leaky_relu")
def _leaky_relu(e: Serializer, node: Any, x: Any, negative_slope: float = 0.01) -> Any:
    v = e.value(x)
    return e.give(node, Code.PRELU, [v.operand, e.value(negative_slope).operand], v)


@form("softmax", "_softmax", "log_softmax", "_log_softmax")
def _softmax(e: Serializer, node: Any, x: Any, dim: int, *rest: Any) -> Any:
    code = Code.LOG_SOFTMAX if "log" in node.target._opname else Code.SOFTMAX
    v = e.value(x)
    return e.give(node, code, [v.operand, e.number(1.0), e.integer(e.dim(v, dim))], v)


# ---- reductions


def _reduction(code: Code) -> Callable:
    def compute(
        e: Serializer, node: Any, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Any:
        eight = code is Code.MEAN and e.in_eight_bits(node, x, fused=False)
        v = x.value if eight else e.value(x)
        dims = list(range(len(v.sizes))) if dim is None or dim == [] else _each(dim, 1)
        if v.nhwc and not keepdim and sorted(d % 4 for d in dims) != [2, 3]:
            v = e.plain(v)
        axes = e.integers([e.dim(v, d) for d in dims])
        like = _like(e, node, v, nhwc=v.nhwc and keepdim)
        return e.give(node, code, [v.operand, axes, e.integer(int(keepdim))], like, eight_bits=eight)

    return compute


_mean = _reduction(Code.MEAN)
FORMS.update(
    {
        "mean": _mean,
        "sum": _reduction(Code.REDUCE_SUM),
        "amax": _reduction(Code.REDUCE_MAX),
        "amin": _reduction(Code.REDUCE_MIN),
    }
)


# ---- movements


def _moved(e: Serializer, node: Any, x: Any, give: Callable[[Value], tuple[Code, list[int], Value]]) -> Any:
    """Adds an operation that moves elements; 8-bit values remain what they are."""
    if isinstance(x, Dequantized):
        code, inputs, like = give(x.value)
        out = e.apply(code, inputs, like)
        return Dequantized(out)
    code, inputs, like = give(e.value(x))
    return e.apply(code, inputs, like)


@form("view", "reshape", "_unsafe_view", "flatten", "unsqueeze", "squeeze")
def _view(e: Serializer, node: Any, x: Any, *rest: Any, **options: Any) -> Any:
    sizes = e.sizes(node)
    unknown = [d for d, n in enumerate(sizes) if not isinstance(n, int)]
    if len(unknown) > 1:
        raise e.unsupported(node, "more than one size that depends on the inputs")

    def give(v: Value) -> tuple[Code, list[int], Value]:
        one = v.nhwc and all(n == 1 for n in v.sizes[2:])  # then both orders are the same
        v = v if one else e.plain(v)
        target = e.integers([n if isinstance(n, int) else -1 for n in sizes])
        return Code.RESHAPE, [v.operand, target], _like(e, node, v, nhwc=False)

    return _moved(e, node, x, give)


@form("permute", "transpose", "t", "movedim")
def _permute(e: Serializer, node: Any, x: Any, *dims: Any) -> Any:
    rank = len(node.args[0].meta["sizes"])
    order = list(range(rank))
    if node.target._opname == "permute":
        order = [
            d % rank for d in (dims[0] if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else dims)
        ]
    elif node.target._opname == "movedim":
        moved = dict(zip((d % rank for d in _each(dims[1], 1)), (d % rank for d in _each(dims[0], 1))))
        rest = iter(d for d in range(rank) if d not in moved.values())
        order = [moved[d] if d in moved else next(rest) for d in range(rank)]
    elif node.target._opname == "t":
        order = order[::-1]
    else:
        order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]

    def give(v: Value) -> tuple[Code, list[int], Value]:
        v = e.plain(v)
        return Code.TRANSPOSE, [v.operand, e.integers(order)], _like(e, node, v)

    return _moved(e, node, x, give)


@form("slice", "narrow")
def _slice(
    e: Serializer, node: Any, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    size = node.args[0].meta["sizes"][dim]
    if not isinstance(size, int) or step != 1:
        raise e.unsupported(node, "steps, and sizes that depend on the inputs")
    length = int(e.sizes(node)[dim])
    first = 0 if start is None else start + size if start < 0 else start

    def give(v: Value) -> tuple[Code, list[int], Value]:
        at = e.dim(v, dim)
        begin = [min(first, size) if d == at else 0 for d in range(len(v.sizes))]
        count = [length if d == at else -1 for d in range(len(v.sizes))]
        return Code.SLICE, [v.operand, e.integers(begin), e.integers(count)], _like(e, node, v)

    return _moved(e, node, x, give)


@form("split", "chunk")
def _split(e: Serializer, node: Any, x: Any, parts: Any, dim: int = 0) -> Any:
    at, pieces = 0, []
    for result in node.meta["val"]:
        length = int(result.shape[dim])

        def give(v: Value, at: int = at, length: int = length) -> tuple[Code, list[int], Value]:
            d = e.dim(v, dim)
            begin = [at if k == d else 0 for k in range(len(v.sizes))]
            count = [length if k == d else -1 for k in range(len(v.sizes))]
            sizes = tuple(length if k == dim % len(v.sizes) else n for k, n in enumerate(v.sizes))
            return Code.SLICE, [v.operand, e.integers(begin), e.integers(count)], replace(v, sizes=sizes)

        pieces.append(_moved(e, node, x, give))
        at += length
    return pieces


@form("cat")
def _cat(e: Serializer, node: Any, tensors: Any, dim: int = 0) -> Any:
    eight = all(isinstance(t, Dequantized) for t in tensors) and e.in_eight_bits(node, *tensors, fused=False)
    values = [t.value if eight else e.value(t) for t in tensors]
    if any(v.nhwc for v in values):
        values = [e.image(v) for v in values]
    axis = e.integer(e.dim(values[0], dim))
    return e.give(
        node,
        Code.CONCATENATION,
        [*(v.operand for v in values), axis],
        _like(e, node, values[0]),
        eight_bits=eight,
    )


@form("constant_pad_nd", "pad")
def _pad(e: Serializer, node: Any, x: Any, pad: Any, *rest: Any) -> Any:
    if any(r not in (0, None, "constant") for r in rest):
        raise e.unsupported(node, "padding with anything but zeros")
    rank = len(node.args[0].meta["sizes"])
    low, high = [0] * rank, [0] * rank
    for k in range(len(pad) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = int(pad[2 * k]), int(pad[2 * k + 1])
    if any(n < 0 for n in (*low, *high)):
        raise e.unsupported(node, "negative padding")

    def give(v: Value) -> tuple[Code, list[int], Value]:
        by_dim: dict[int, list[int]] = {e.dim(v, d): [low[d], high[d]] for d in range(rank)}
        pads = [n for d in range(rank) for n in by_dim[d]]
        return Code.PAD, [v.operand, e.integers(pads, 2)], _like(e, node, v)

    return _moved(e, node, x, give)


@form(
    "detach",
    "alias",
    "clone",
    "contiguous",
    "_copied",
    "positive",
    "_row_major",
    "lift_fresh",
    "to_dtype",
    "_unrounded",
)
def _same(e: Serializer, node: Any, x: Any, *rest: Any, **options: Any) -> Any:
    dtype = node.meta["val"].dtype if hasattr(node.meta.get("val"), "dtype") else None
    if dtype is not None and not isinstance(x, Tensor) and dtype is not _C.float32:
        raise e.unsupported(node, f"a conversion to {dtype}")
    return x
