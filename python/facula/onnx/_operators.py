"""The ONNX form of each operator: a function of the exporter, the node and its arguments, by name of the
operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _C

__all__ = ["FORMS"]

FORMS: dict[str, Callable] = {}


def form(*names: str) -> Callable:
    def register(f: Callable) -> Callable:
        for name in names:
            FORMS[name] = f
        return f

    return register


# ---- pointwise


_UNARY = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "neg": "Neg", "abs": "Abs", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sign": "Sign",
    "reciprocal": "Reciprocal", "logical_not": "Not", "isnan": "IsNaN", "isinf": "IsInf",
    "softsign": "Softsign", "mish": "Mish", "hardswish": "HardSwish",
}  # fmt: skip
_COMPARISONS = {"eq": "Equal", "lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual"}
_BINARY = {"mul": "Mul", "maximum": "Max", "minimum": "Min", "pow": "Pow", "fmod": "Mod"}


def _unary(op: str) -> Callable:
    return lambda e, node, x: e.emit(
        op, e.cast(x, e.dtype(node) if op != "IsNaN" and op != "IsInf" else None)
    )


for _name, _op in _UNARY.items():
    FORMS[_name] = _unary(_op)


def _logical_not(e: Any, node: Any, x: Any) -> str:
    return e.emit("Not", e.cast(x, _C.bool))


FORMS["logical_not"] = _logical_not


def _compared(op: str) -> Callable:
    def compare(e: Any, node: Any, a: Any, b: Any) -> str:
        return e.emit(op, *e.promoted(a, b))

    return compare


for _name, _op in _COMPARISONS.items():
    FORMS[_name] = _compared(_op)


@form("ne")
def _ne(e: Any, node: Any, a: Any, b: Any) -> str:
    return e.emit("Not", e.emit("Equal", *e.promoted(a, b)))


def _binary(op: str) -> Callable:
    def compute(e: Any, node: Any, a: Any, b: Any) -> str:
        dtype = e.dtype(node)
        attributes = {"fmod": 1} if op == "Mod" else {}
        if dtype is _C.bool and op == "Mul":
            return e.emit("And", e.cast(a, dtype), e.cast(b, dtype))
        return e.emit(op, e.cast(a, dtype), e.cast(b, dtype), **attributes)

    return compute


for _name, _op in _BINARY.items():
    FORMS[_name] = _binary(_op)


def _scaled(e: Any, x: Any, alpha: Any, dtype: Any) -> str:
    x = e.cast(x, dtype)
    return x if alpha == 1 else e.emit("Mul", x, e.cast(alpha, dtype))


@form("add")
def _add(e: Any, node: Any, a: Any, b: Any, alpha: Any = 1) -> str:
    dtype = e.dtype(node)
    if dtype is _C.bool:
        return e.emit("Or", e.cast(a, dtype), e.cast(b, dtype))
    return e.emit("Add", e.cast(a, dtype), _scaled(e, b, alpha, dtype))


@form("sub")
def _sub(e: Any, node: Any, a: Any, b: Any, alpha: Any = 1) -> str:
    return e.emit("Sub", e.cast(a, e.dtype(node)), _scaled(e, b, alpha, e.dtype(node)))


@form("rsub")
def _rsub(e: Any, node: Any, a: Any, b: Any, alpha: Any = 1) -> str:
    return e.emit("Sub", e.cast(b, e.dtype(node)), _scaled(e, a, alpha, e.dtype(node)))


@form("div")
def _div(e: Any, node: Any, a: Any, b: Any, rounding_mode: Any = None) -> str:
    dtype = e.dtype(node)
    quotient = e.emit("Div", e.cast(a, dtype), e.cast(b, dtype))
    if rounding_mode is None or rounding_mode == "trunc" and not dtype.is_floating_point:
        return quotient
    if rounding_mode == "floor" and dtype.is_floating_point:
        return e.emit("Floor", quotient)
    raise e.unsupported(node, f"rounding_mode={rounding_mode!r} for {dtype}")


@form("floor_divide")
def _floor_divide(e: Any, node: Any, a: Any, b: Any) -> str:
    dtype = e.dtype(node)
    if dtype.is_floating_point:
        return e.emit("Floor", e.emit("Div", e.cast(a, dtype), e.cast(b, dtype)))
    a, b = e.cast(a, dtype), e.cast(b, dtype)
    return e.emit("Div", e.emit("Sub", a, e.emit("Mod", a, b)), b)


@form("remainder")
def _remainder(e: Any, node: Any, a: Any, b: Any) -> str:
    dtype = e.dtype(node)
    a, b = e.cast(a, dtype), e.cast(b, dtype)
    if dtype.is_floating_point:
        return e.emit("Sub", a, e.emit("Mul", e.emit("Floor", e.emit("Div", a, b)), b))
    return e.emit("Mod", a, b)


def _logical(op: str) -> Callable:
    return lambda e, node, a, b: e.emit(op, e.cast(a, _C.bool), e.cast(b, _C.bool))


for _name, _op in {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}.items():
    FORMS[_name] = _logical(_op)


def _bitwise(of_bools: str, op: str) -> Callable:
    def compute(e: Any, node: Any, a: Any, b: Any) -> str:
        dtype = e.dtype(node)
        return e.emit(of_bools if dtype is _C.bool else op, e.cast(a, dtype), e.cast(b, dtype))

    return compute


for _name, _op in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    FORMS["bitwise_" + _name] = _bitwise(_op, "Bitwise" + _op)


@form("bitwise_not")
def _bitwise_not(e: Any, node: Any, x: Any) -> str:
    return e.emit("Not" if e.dtype(node) is _C.bool else "BitwiseNot", x)


@form("rsqrt")
def _rsqrt(e: Any, node: Any, x: Any) -> str:
    return e.emit("Reciprocal", e.emit("Sqrt", e.cast(x, e.dtype(node))))


@form("square")
def _square(e: Any, node: Any, x: Any) -> str:
    return e.emit("Mul", x, x)


@form("silu")
def _silu(e: Any, node: Any, x: Any) -> str:
    return e.emit("Mul", x, e.emit("Sigmoid", x))


@form("gelu")
def _gelu(e: Any, node: Any, x: Any, approximate: str = "none") -> str:
    if e.opset >= 20:
        return e.emit("Gelu", x, approximate=approximate)
    dtype = e.dtype(node)
    half = e.emit("Mul", x, e.cast(0.5, dtype))
    if approximate == "tanh":
        cubed = e.emit("Mul", e.emit("Mul", x, e.emit("Mul", x, x)), e.cast(0.044715, dtype))
        inner = e.emit("Tanh", e.emit("Mul", e.emit("Add", x, cubed), e.cast(math.sqrt(2 / math.pi), dtype)))
    else:
        inner = e.emit("Erf", e.emit("Mul", x, e.cast(math.sqrt(0.5), dtype)))
    return e.emit("Mul", half, e.emit("Add", inner, e.cast(1.0, dtype)))


@form("leaky_relu")
def _leaky_relu(e: Any, node: Any, x: Any, negative_slope: float = 0.01) -> str:
    return e.emit("LeakyRelu", x, alpha=float(negative_slope))


@form("elu")
def _elu(e: Any, node: Any, x: Any, alpha: float = 1.0) -> str:
    return e.emit("Elu", x, alpha=float(alpha))


@form("selu")
def _selu(e: Any, node: Any, x: Any) -> str:
    return e.emit("Selu", x)


@form("celu")
def _celu(e: Any, node: Any, x: Any, alpha: float = 1.0) -> str:
    return e.emit("Celu", x, alpha=float(alpha))


@form("hardsigmoid")
def _hardsigmoid(e: Any, node: Any, x: Any) -> str:
    return e.emit("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@form("softplus")
def _softplus(e: Any, node: Any, x: Any, beta: Any = 1, threshold: Any = 20) -> str:
    dtype = e.dtype(node)
    scaled = x if beta == 1 else e.emit("Mul", x, e.cast(beta, dtype))
    smooth = e.emit("Softplus", scaled)
    smooth = smooth if beta == 1 else e.emit("Div", smooth, e.cast(beta, dtype))
    return e.emit("Where", e.emit("Greater", scaled, e.cast(threshold, dtype)), x, smooth)


@form("log_sigmoid")
def _log_sigmoid(e: Any, node: Any, x: Any) -> str:
    return e.emit("Neg", e.emit("Softplus", e.emit("Neg", x)))


@form("clamp", "hardtanh")
def _clamp(e: Any, node: Any, x: Any, low: Any = None, high: Any = None) -> str:
    if "hardtanh" in str(node.target):
        low, high = -1 if low is None else low, 1 if high is None else high
    dtype = e.dtype(node)
    x = e.cast(x, dtype)
    x = x if low is None else e.emit("Max", x, e.cast(low, dtype))
    return x if high is None else e.emit("Min", x, e.cast(high, dtype))


@form("clamp_min")
def _clamp_min(e: Any, node: Any, x: Any, low: Any) -> str:
    return _clamp(e, node, x, low, None)


@form("clamp_max")
def _clamp_max(e: Any, node: Any, x: Any, high: Any) -> str:
    return _clamp(e, node, x, None, high)


@form("exp2")
def _exp2(e: Any, node: Any, x: Any) -> str:
    return e.emit("Pow", e.cast(2.0, e.dtype(node)), x)


@form("expm1")
def _expm1(e: Any, node: Any, x: Any) -> str:
    return e.emit("Sub", e.emit("Exp", x), e.cast(1.0, e.dtype(node)))


@form("log1p")
def _log1p(e: Any, node: Any, x: Any) -> str:
    return e.emit("Log", e.emit("Add", x, e.cast(1.0, e.dtype(node))))


def _log_of_base(base: float) -> Callable:
    return lambda e, node, x: e.emit("Div", e.emit("Log", x), e.cast(math.log(base), e.dtype(node)))


FORMS["log2"], FORMS["log10"] = _log_of_base(2), _log_of_base(10)


@form("erfc")
def _erfc(e: Any, node: Any, x: Any) -> str:
    return e.emit("Sub", e.cast(1.0, e.dtype(node)), e.emit("Erf", x))


@form("trunc")
def _trunc(e: Any, node: Any, x: Any) -> str:
    return e.emit("Mul", e.emit("Sign", x), e.emit("Floor", e.emit("Abs", x)))


@form("isfinite")
def _isfinite(e: Any, node: Any, x: Any) -> str:
    return e.emit("Not", e.emit("Or", e.emit("IsNaN", x), e.emit("IsInf", x)))


@form("where")
def _where(e: Any, node: Any, condition: Any, a: Any, b: Any) -> str:
    dtype = e.dtype(node)
    return e.emit("Where", e.cast(condition, _C.bool), e.cast(a, dtype), e.cast(b, dtype))


@form("masked_fill")
def _masked_fill(e: Any, node: Any, x: Any, mask: Any, value: Any) -> str:
    return e.emit("Where", mask, e.cast(value, e.dtype(node)), x)


@form("lerp")
def _lerp(e: Any, node: Any, a: Any, b: Any, weight: Any) -> str:
    dtype = e.dtype(node)
    a = e.cast(a, dtype)
    return e.emit("Add", a, e.emit("Mul", e.cast(weight, dtype), e.emit("Sub", e.cast(b, dtype), a)))


@form("_fused_multiply_add")
def _multiply_add(e: Any, node: Any, a: Any, b: Any, c: Any) -> str:
    dtype = e.dtype(node)
    return e.emit("Add", e.emit("Mul", e.cast(a, dtype), e.cast(b, dtype)), e.cast(c, dtype))


@form("addcmul")
def _addcmul(e: Any, node: Any, x: Any, a: Any, b: Any, value: Any = 1) -> str:
    dtype = e.dtype(node)
    return e.emit(
        "Add", e.cast(x, dtype), _scaled(e, e.emit("Mul", e.cast(a, dtype), e.cast(b, dtype)), value, dtype)
    )


@form("addcdiv")
def _addcdiv(e: Any, node: Any, x: Any, a: Any, b: Any, value: Any = 1) -> str:
    dtype = e.dtype(node)
    return e.emit(
        "Add", e.cast(x, dtype), _scaled(e, e.emit("Div", e.cast(a, dtype), e.cast(b, dtype)), value, dtype)
    )


@form("to_dtype", "_unrounded")
def _to_dtype(e: Any, node: Any, x: Any, dtype: Any) -> str:
    return e.cast(x, dtype)


@form("detach", "alias", "clone", "contiguous", "_copied", "positive", "_row_major", "lift_fresh")
def _same(e: Any, node: Any, x: Any, memory_format: Any = None) -> str:
    return x


@form("_accepted")
def _accepted(e: Any, node: Any, x: Any, zero: Any) -> str:
    return x  # ONNX has no operator that refuses elements


@form("_with_history")
def _with_history(e: Any, node: Any, x: Any, value: Any) -> str:
    return value


# ---- products and convolutions


@form("linear")
def _linear(e: Any, node: Any, x: Any, weight: Any, bias: Any = None) -> str:
    rank = e.rank(node.args[0])
    if rank == 2 and bias is not None:
        return e.emit("Gemm", x, weight, bias, transB=1)
    y = e.emit("MatMul", x, e.emit("Transpose", weight, perm=[1, 0]))
    return y if bias is None else e.emit("Add", y, bias)


@form("mm", "bmm", "_matmul", "matmul", "dot")
def _matmul(e: Any, node: Any, a: Any, b: Any) -> str:
    return e.emit("MatMul", a, b)


@form("_matrix_vector")
def _matrix_vector(e: Any, node: Any, a: Any, b: Any, c: Any = None, beta: Any = 1, alpha: Any = 1) -> str:
    y = _scaled(e, e.emit("MatMul", a, b), alpha, e.dtype(node))
    return y if c is None else e.emit("Add", y, _scaled(e, c, beta, e.dtype(node)))


@form("addmm", "baddbmm")
def _addmm(e: Any, node: Any, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> str:
    y = _scaled(e, e.emit("MatMul", a, b), alpha, e.dtype(node))
    return e.emit("Add", y, _scaled(e, c, beta, e.dtype(node)))


@form("conv2d", "conv3d")
def _conv(
    e: Any,
    node: Any,
    x: Any,
    w: Any,
    b: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> str:
    n = e.rank(node.args[0]) - 2
    pads = _each(padding, n)
    inputs = [x, w] if b is None else [x, w, b]
    return e.emit(
        "Conv",
        *inputs,
        strides=_each(stride, n),
        pads=[*pads, *pads],
        dilations=_each(dilation, n),
        group=groups,
    )


def _each(x: Any, n: int) -> list[int]:
    values = list(x) if isinstance(x, (list, tuple)) else [x]
    return [int(v) for v in (values * n if len(values) == 1 else values)]


@form("max_pool2d_taps", "max_pool2d")
def _max_pool(
    e: Any,
    node: Any,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    if any(n.args[1] == 1 for n in node.users) and "taps" in str(node.target):
        raise e.unsupported(node, "the positions of maxima")
    pads, kernel = _each(padding, 2), _each(kernel, 2)
    y = e.emit(
        "MaxPool", x, kernel_shape=kernel, strides=_each(stride, 2) if stride else kernel,
        pads=[*pads, *pads], dilations=_each(dilation, 2), ceil_mode=int(ceil_mode),
    )  # fmt: skip
    return [y, None] if "taps" in str(node.target) else y


@form("avg_pool2d")
def _avg_pool(
    e: Any, node: Any, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> str:  # fmt: skip
    if divisor_override is not None:
        raise e.unsupported(node, "divisor_override")
    pads, kernel = _each(padding, 2), _each(kernel, 2)
    return e.emit(
        "AveragePool", x, kernel_shape=kernel, strides=_each(stride, 2) if stride else kernel,
        pads=[*pads, *pads], ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad),
    )  # fmt: skip


@form("_attention")
def _attention(
    e: Any, node: Any, q: Any, k: Any, v: Any, mask: Any = None, state: Any = None, dropout: float = 0.0,
    is_causal: bool = False, scale: float = 1.0,
) -> list:  # fmt: skip
    if dropout:
        raise e.unsupported(node, "dropout, which evaluation mode does not have")
    dtype, rank = e.dtype(node.args[0]), e.rank(node.args[1])
    keys = e.emit("Transpose", k, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = e.emit("Mul", e.emit("MatMul", q, keys), e.cast(scale, dtype))
    if is_causal:
        sizes = e.shape_of(q, -2), e.shape_of(k, -2)
        ones = e.emit("ConstantOfShape", e.emit("Concat", *sizes, axis=0), value=e.tensor_of(1, _C.int32))
        later = e.emit("Cast", e.emit("Trilu", ones, e.cast(1, _C.int64), upper=1), to=e.kind(_C.bool))
        scores = e.emit("Where", later, e.cast(float("-inf"), dtype), scores)
    if mask is not None:
        if e.dtype(node.args[3]) is _C.bool:
            scores = e.emit("Where", mask, scores, e.cast(float("-inf"), dtype))
        else:
            scores = e.emit("Add", scores, e.cast(mask, dtype))
    y = e.emit("MatMul", e.emit("Softmax", scores, axis=-1), v)
    return [e.emit("Transpose", y, perm=[0, 2, 1, 3]), None]  # [batch, positions, heads, width]


# ---- reductions


def _reduced(op: str) -> Callable:
    def reduce(e: Any, node: Any, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> str:
        if op in ("ReduceSum", "ReduceMean", "ReduceProd"):
            x = e.cast(x, e.dtype(node))
        return e.reduce(op, x, dim, keepdim)

    return reduce


for _name, _op in {
    "sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd",
    "_top": "ReduceMax",
}.items():  # fmt: skip
    FORMS[_name] = _reduced(_op)


@form("_top")
def _top(e: Any, node: Any, x: Any, dim: Any = (), keepdim: bool = True) -> str:
    """The largest value, or 0 where it is infinite, so that its difference to others is a number."""
    dtype = e.dtype(node)
    top = e.reduce("ReduceMax", x, dim, keepdim)
    return e.emit("Where", e.emit("IsInf", top), e.cast(0, dtype), top)


@form("any", "all")
def _any(e: Any, node: Any, x: Any, dim: Any = None, keepdim: bool = False) -> str:
    op = "ReduceMax" if ".any" in f".{str(node.target).partition('.')[2]}" else "ReduceMin"
    return e.cast(
        e.reduce(op, e.emit("Cast", e.cast(x, _C.bool), to=e.kind(_C.int32)), dim, keepdim), _C.bool
    )


@form("_mean_and_deviation")
def _mean_and_deviation(e: Any, node: Any, x: Any, dim: Any, keepdim: bool) -> list:
    mean = e.reduce("ReduceMean", x, dim, True)
    difference = e.emit("Sub", x, mean)
    deviation = e.reduce("ReduceSum", e.emit("Mul", difference, difference), dim, keepdim)
    return [mean if keepdim else e.reduce("ReduceMean", x, dim, False), deviation]


FORMS["_moments"] = _mean_and_deviation


@form("_square_deviation")
def _square_deviation(e: Any, node: Any, x: Any, dim: Any, keepdim: bool) -> str:
    return _mean_and_deviation(e, node, x, dim, keepdim)[1]


@form("max", "min")
def _max(e: Any, node: Any, x: Any, dim: int, keepdim: bool = False) -> list:
    name = node.target._opname
    values = e.reduce("ReduceMax" if name == "max" else "ReduceMin", x, [dim], keepdim)
    return [values, e.emit("ArgMax" if name == "max" else "ArgMin", x, axis=dim, keepdims=int(keepdim))]


@form("argmax", "argmin")
def _argmax(e: Any, node: Any, x: Any, dim: Any = None, keepdim: bool = False) -> str:
    op = "ArgMax" if node.target._opname == "argmax" else "ArgMin"
    if dim is None:
        flat = e.emit("Reshape", x, e.ints([-1]))
        return e.emit("Squeeze", e.emit(op, flat, axis=0, keepdims=1), e.ints([0]))
    return e.emit(op, x, axis=dim, keepdims=int(keepdim))


@form("cumsum")
def _cumsum(e: Any, node: Any, x: Any, dim: int, dtype: Any = None) -> str:
    return e.emit("CumSum", e.cast(x, e.dtype(node)), e.cast(dim, _C.int64))


@form("softmax", "_softmax", "log_softmax", "_log_softmax")
def _softmax(e: Any, node: Any, x: Any, dim: int, *rest: Any) -> str:
    op = "LogSoftmax" if "log" in node.target._opname else "Softmax"
    return e.emit(op, e.cast(x, e.dtype(node)), axis=dim)


@form("topk")
def _topk(
    e: Any, node: Any, x: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list:
    return e.emit_many("TopK", 2, x, e.shape([k]), axis=dim, largest=int(largest), sorted=int(sorted))


@form("sort")
def _sort(e: Any, node: Any, x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> list:
    return e.emit_many("TopK", 2, x, e.shape_of(x, dim), axis=dim, largest=int(descending), sorted=1)


# ---- views and selections


@form("view", "reshape", "_unsafe_view")
def _view(e: Any, node: Any, x: Any, size: Any) -> str:
    return e.emit("Reshape", x, e.shape(size, infer=True))


@form("expand")
def _expand(e: Any, node: Any, x: Any, size: Any) -> str:
    return e.emit("Expand", x, e.shape([1 if type(n) is int and n == -1 else n for n in size]))


@form("permute")
def _permute(e: Any, node: Any, x: Any, dims: Any) -> str:
    rank = len(dims)
    return e.emit("Transpose", x, perm=[d % rank for d in dims])


@form("transpose")
def _transpose(e: Any, node: Any, x: Any, a: int, b: int) -> str:
    perm = list(range(e.rank(node.args[0])))
    perm[a], perm[b] = perm[b], perm[a]
    return e.emit("Transpose", x, perm=perm)


@form("t")
def _t(e: Any, node: Any, x: Any) -> str:
    return e.emit("Transpose", x, perm=list(reversed(range(e.rank(node.args[0])))))


@form("unsqueeze")
def _unsqueeze(e: Any, node: Any, x: Any, dim: int) -> str:
    return e.emit("Unsqueeze", x, e.ints([dim]))


@form("squeeze")
def _squeeze(e: Any, node: Any, x: Any, dim: Any = None) -> str:
    sizes = node.args[0].meta["sizes"]
    dims = range(len(sizes)) if dim is None else [dim] if isinstance(dim, int) else dim
    ones = [d % len(sizes) for d in dims if sizes and sizes[d] == 1]
    return e.emit("Squeeze", x, e.ints(ones)) if ones else x


@form("select")
def _select(e: Any, node: Any, x: Any, dim: int, index: Any) -> str:
    return e.emit("Gather", x, e.cast(index, _C.int64), axis=dim)


@form("slice")
def _slice(e: Any, node: Any, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> str:
    ends = e.shape([2**63 - 1 if end is None else end])
    return e.emit("Slice", x, e.shape([0 if start is None else start]), ends, e.ints([dim]), e.shape([step]))


@form("narrow")
def _narrow(e: Any, node: Any, x: Any, dim: int, start: Any, length: Any) -> str:
    begin = e.shape([start])
    return e.emit("Slice", x, begin, e.emit("Add", begin, e.shape([length])), e.ints([dim]))


@form("split")
def _split(e: Any, node: Any, x: Any, size: Any, dim: int = 0) -> list:
    if isinstance(size, (list, tuple)):
        return e.emit_many("Split", len(size), x, e.shape(size), axis=dim)
    n = node.args[0].meta["sizes"][dim]
    if type(n) is not int or type(size) is not int:
        raise e.unsupported(node, "a dimension whose size may change")
    sizes = [min(size, n - begin) for begin in range(0, n, size)] or [0]
    return e.emit_many("Split", len(sizes), x, e.ints(sizes), axis=dim)


@form("chunk")
def _chunk(e: Any, node: Any, x: Any, chunks: int, dim: int = 0) -> list:
    n = node.args[0].meta["sizes"][dim]
    return _split(e, node, x, -(-n // chunks) if type(n) is int else n, dim)


@form("unbind")
def _unbind(e: Any, node: Any, x: Any, dim: int = 0) -> list:
    count = node.args[0].meta["sizes"][dim]
    if type(count) is not int:
        raise e.unsupported(node, "a dimension whose size may change")
    return [e.emit("Gather", x, e.cast(k, _C.int64), axis=dim) for k in range(count)]


@form("cat")
def _cat(e: Any, node: Any, tensors: Any, dim: int = 0) -> str:
    return e.emit("Concat", *[e.cast(t, e.dtype(node)) for t in tensors], axis=dim)


@form("repeat")
def _repeat(e: Any, node: Any, x: Any, repeats: Any) -> str:
    missing = len(repeats) - e.rank(node.args[0])
    x = e.emit("Unsqueeze", x, e.ints(list(range(missing)))) if missing else x
    return e.emit("Tile", x, e.shape(repeats))


@form("flip")
def _flip(e: Any, node: Any, x: Any, dims: Any) -> str:
    n = len(dims)
    return e.emit("Slice", x, e.ints([-1] * n), e.ints([-(2**63)] * n), e.ints(list(dims)), e.ints([-1] * n))


@form("tril", "triu")
def _triangle(e: Any, node: Any, x: Any, diagonal: Any = 0) -> str:
    return e.emit("Trilu", x, e.cast(diagonal, _C.int64), upper=int(node.target._opname == "triu"))


@form("constant_pad_nd")
def _pad(e: Any, node: Any, x: Any, pad: Any, value: Any = 0) -> str:
    rank = e.rank(node.args[0])
    low, high = [0] * rank, [0] * rank
    for k in range(len(pad) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    return e.emit("Pad", x, e.shape([*low, *high]), e.cast(value, e.dtype(node)))


@form("embedding")
def _embedding(e: Any, node: Any, weight: Any, ids: Any, *rest: Any) -> str:
    return e.emit("Gather", weight, ids, axis=0)


@form("index_select")
def _index_select(e: Any, node: Any, x: Any, dim: int, index: Any) -> str:
    return e.emit("Gather", x, index, axis=dim)


@form("gather")
def _gather(e: Any, node: Any, x: Any, dim: int, index: Any, *rest: Any, **options: Any) -> str:
    return e.emit("GatherElements", x, index, axis=dim)


@form("_index")
def _index(e: Any, node: Any, x: Any, indices: Any) -> str:
    used = [k for k, i in enumerate(indices) if i is not None]
    if len(used) == 1:
        return e.emit("Gather", x, indices[used[0]], axis=used[0])
    if used != list(range(len(used))):
        raise e.unsupported(node, "indices of dimensions that are not the first ones")
    shape = e.emit("Shape", e.sum_of([e.emit("Mul", indices[k], e.cast(0, _C.int64)) for k in used]))
    columns = [e.emit("Unsqueeze", e.emit("Expand", indices[k], shape), e.ints([-1])) for k in used]
    return e.emit("GatherND", x, e.emit("Concat", *columns, axis=-1))


# ---- creation


@form("full")
def _full(e: Any, node: Any, size: Any, value: Any, **options: Any) -> str:
    dtype = e.dtype(node)
    if not size:
        return e.cast(value, dtype)
    return e.emit("Expand", e.cast(value, dtype), e.shape(size))


@form("_arange")
def _arange(e: Any, node: Any, start: Any, step: Any, n: Any, dtype: Any) -> str:
    count = e.emit("Squeeze", e.shape([n]), e.ints([0]))
    numbers = e.emit("Range", e.cast(0, _C.int64), count, e.cast(1, _C.int64))
    if step != 1 or dtype is not _C.int64:
        numbers = e.emit("Mul", e.emit("Cast", numbers, to=e.kind(dtype)), e.cast(step, dtype))
    return numbers if start == 0 else e.emit("Add", numbers, e.cast(start, dtype))
