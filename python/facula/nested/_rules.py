"""Functions of nested tensors that are not element-wise, by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _C
from ._jagged import (
    NestedTensor,
    _dim,
    _inner,
    _is_contiguous,
    _like,
    _nested,
    _of_padded,
    _packed,
    _padded,
    _rank,
    _refused,
    _shape,
    ragged_of,
    rule,
)

Tensor = _C.Tensor
_f = _C.functions


@rule("dim", "ndimension")
def dim(_: Any, x: NestedTensor) -> int:
    return _rank(x)


@rule("size")
def size(_: Any, x: NestedTensor, dim: int | None = None) -> Any:
    return _shape(x) if dim is None else _shape(x)[_dim("size", x, dim)]


@rule("__len__")
def length(_: Any, x: NestedTensor) -> int:
    return len(x._ragged)


@rule("numel", "nelement")
def numel(_: Any, x: NestedTensor) -> int:
    return _packed(x).numel()


@rule("is_contiguous")
def is_contiguous(_: Any, x: NestedTensor, memory_format: Any = None) -> bool:
    return _is_contiguous(x)


@rule("contiguous", "clone")
def contiguous(func: Callable, x: NestedTensor, *args: Any, **kwargs: Any) -> NestedTensor:
    """Returns the rows packed in memory; ``clone`` packs them only for ``contiguous_format``."""
    default = _C.contiguous_format if func.__name__ == "contiguous" else _C.preserve_format
    wanted = kwargs.get("memory_format", args[0] if args else default)
    if wanted is not _C.contiguous_format or x._ragged.fills(x._values.shape[x._ragged_idx - 1]):
        return _like(x, func(x._values, *args, **kwargs))
    return _nested(_packed(x).contiguous(), ragged_of(x._ragged.lengths), x._ragged_idx)


@rule(
    "is_floating_point",
    "is_complex",
    "is_signed",
    "element_size",
    "get_device",
    "retain_grad",
    "is_inference",
)
def fact(func: Callable, x: NestedTensor) -> Any:
    return func(x._values)


@rule("backward")
def backward(_: Any, x: NestedTensor, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    gradient_values = gradient._values if isinstance(gradient, NestedTensor) else gradient
    x._values.backward(gradient_values, *args, **kwargs)


@rule("equal")
def equal(func: Callable, x: Any, other: Any) -> bool:
    if not (isinstance(x, NestedTensor) and isinstance(other, NestedTensor)):
        return False
    same = x._ragged_idx == other._ragged_idx and func(x._ragged.lengths, other._ragged.lengths)
    return same and func(_packed(x), _packed(other))


@rule("allclose")
def allclose(func: Callable, x: NestedTensor, other: NestedTensor, *args: Any, **kwargs: Any) -> bool:
    if not isinstance(x, NestedTensor) or not isinstance(other, NestedTensor):
        raise _refused("allclose")
    if not x._ragged.lengths.equal(other._ragged.lengths):
        raise RuntimeError("allclose: the rows of both nested tensors must have the same lengths")
    return func(_packed(x), _packed(other), *args, **kwargs)


# ---- reductions

_FILL = {"sum": 0, "mean": 0, "prod": 1, "any": False, "all": True}


def _fill(name: str, x: NestedTensor) -> Any:
    """Returns the fill value next to a row's elements that does not change the result."""
    if name in _FILL:
        return _FILL[name]
    least = name in ("amax", "max", "argmax")
    if x._values.dtype.is_floating_point:
        return -math.inf if least else math.inf
    limits = _C.iinfo(x._values.dtype) if x._values.dtype is not _C.bool else None
    return (limits.min if least else limits.max) if limits else not least


@rule("sum", "mean", "prod", "amax", "amin", "max", "min", "any", "all", "argmax", "argmin")
def reduction(
    func: Callable, x: NestedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    name = func.__name__
    more = {} if dtype is None else {"dtype": dtype}
    if isinstance(dim, Tensor):
        raise _refused(name)
    if dim is None or dim == ():
        return func(_packed(x), **more)
    axes = sorted({_dim(name, x, d) for d in ([dim] if isinstance(dim, int) else dim)})
    axis = x._ragged_idx
    if 0 not in axes and axis not in axes:
        inner = [d - 1 for d in axes]
        at = axis if keepdim else axis - sum(d < axis for d in axes)
        y = func(x._values, inner[0] if isinstance(dim, int) else inner, keepdim, **more)
        return type(y)([_like(x, v, at) for v in y]) if isinstance(y, tuple) else _like(x, y, at)
    if axis not in axes:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for "
            "nested tensors"
        )
    if 0 in axes:
        y = func(_packed(x), [d - 1 for d in axes if d], keepdim, **more)
        return y.unsqueeze(0) if keepdim else y
    if len(axes) > 1:
        raise RuntimeError(
            f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors"
        )
    if name == "mean":
        total = _padded(x, 0).sum(axis, keepdim, **more)
        count = x._ragged.lengths
        return total / count.reshape(-1, *[1] * (total.dim() - 1)).to(total.dtype)
    return func(_padded(x, _fill(name, x)), axis, keepdim, **more)


@rule("softmax", "log_softmax")
def softmax(
    func: Callable, x: NestedTensor, dim: int | None = None, *args: Any, **kwargs: Any
) -> NestedTensor:
    if dim is None:
        raise RuntimeError(f"{func.__name__}(): expected dim for a nested tensor")
    d = _dim(func.__name__, x, dim)
    if d == 0:
        raise RuntimeError(
            f"{func.__name__}(): not supported when reducing across the batch dimension for NestedTensor"
        )
    if d != x._ragged_idx:
        return _like(x, func(x._values, d - 1, *args, **kwargs))
    return _of_padded(x, func(_padded(x, -math.inf), d, *args, **kwargs), d)


# ---- products and layers


def _last(name: str, x: NestedTensor, count: int = 1) -> None:
    if not isinstance(x, NestedTensor) or x._ragged_idx >= _rank(x) - count:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")


@rule("linear")
def linear(func: Callable, input: NestedTensor, weight: Tensor, bias: Any = None) -> NestedTensor:
    _last("linear", input)
    return _like(input, func(input._values, weight, bias))


@rule("layer_norm", "rms_norm")
def norm(
    func: Callable, input: NestedTensor, normalized_shape: Any, *args: Any, **kwargs: Any
) -> NestedTensor:
    _last(func.__name__, input, len(normalized_shape))
    return _like(input, func(input._values, normalized_shape, *args, **kwargs))


@rule("embedding")
def embedding(func: Callable, input: NestedTensor, weight: Tensor, *args: Any, **kwargs: Any) -> NestedTensor:
    return _like(input, func(input._values, weight, *args, **kwargs))


@rule("matmul", "bmm")
def matmul(func: Callable, a: Any, b: Any) -> Any:
    both = isinstance(a, NestedTensor) and isinstance(b, NestedTensor)
    if both and a._ragged is b._ragged and (a._ragged_idx, b._ragged_idx, _rank(a), _rank(b)) == (2, 1, 3, 3):
        return func(_padded(a, 0), _padded(b, 0))
    if isinstance(a, NestedTensor) and not isinstance(b, NestedTensor):
        _last("matmul", a)
        if b.dim() == 2 and func.__name__ != "bmm":
            return _like(a, _C.functions.matmul(a._values, b))
        if b.dim() == 3 and _rank(a) == 3 and b.shape[0] == len(a._ragged):
            return _of_padded(a, _C.functions.matmul(_padded(a, 0), b), 1)
    raise RuntimeError(
        f"{func.__name__}(): not supported between inputs of shapes "
        f"{' and '.join(str(tuple(t.shape)) for t in (a, b))}"
    )


@rule("scaled_dot_product_attention")
def attention(
    func: Callable,
    query: NestedTensor,
    key: NestedTensor,
    value: NestedTensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **kwargs: Any,
) -> NestedTensor:
    for x in (query, key, value):
        if not isinstance(x, NestedTensor) or _rank(x) != 4 or x._ragged_idx != 2:
            raise RuntimeError(
                "scaled_dot_product_attention: expected nested query, key and value of shape [rows, heads, "
                f"ragged, features], got {[tuple(t.shape) for t in (query, key, value)]}\n"
                "  hint: transpose(1, 2) exchanges the ragged dimension and that of heads"
            )
    if attn_mask is not None:
        raise ValueError("scaled_dot_product_attention: attn_mask is not supported for nested tensors")
    if key._ragged is not value._ragged:
        raise RuntimeError("scaled_dot_product_attention: key and value must share their offsets")
    q, k, v = (_padded(x, 0) for x in (query, key, value))
    mask = (_f.arange(k.shape[2]) < key._ragged.lengths.unsqueeze(1)).reshape(k.shape[0], 1, 1, k.shape[2])
    if is_causal:
        mask = mask & _f.ones(q.shape[2], k.shape[2], dtype=_C.bool).tril()
    return _of_padded(query, func(q, k, v, attn_mask=mask, dropout_p=dropout_p, **kwargs), 2)


# ---- views


@rule("transpose", "swapaxes", "swapdims")
def transpose(_: Any, x: NestedTensor, dim0: int, dim1: int) -> NestedTensor:
    a, b = _dim("transpose", x, dim0), _dim("transpose", x, dim1)
    if a == b:
        return x
    if 0 in (a, b):
        raise RuntimeError("transpose(): not supported for NestedTensor on dim=0")
    moved = {a: b, b: a}.get(x._ragged_idx, x._ragged_idx)
    return _like(x, x._values.transpose(a - 1, b - 1), moved)


@rule("permute")
def permute(_: Any, x: NestedTensor, *dims: Any) -> NestedTensor:
    order = [_dim("permute", x, d) for d in (dims[0] if isinstance(dims[0], (tuple, list)) else dims)]
    if sorted(order) != list(range(_rank(x))):
        raise RuntimeError(f"permute(): expected each dimension once, got {tuple(order)}")
    if order[0] != 0:
        raise RuntimeError("permute(): not supported for NestedTensor on dim=0")
    return _like(x, x._values.permute([d - 1 for d in order[1:]]), order.index(x._ragged_idx))


@rule("view", "reshape")
def view(func: Callable, x: NestedTensor, *shape: Any) -> NestedTensor:
    name = func.__name__
    if len(shape) == 1 and isinstance(shape[0], _C.dtype):
        return _like(x, x._values.view(shape[0]))
    sizes = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
    axis = next((k for k, n in enumerate(sizes) if n is x._ragged), None)
    if axis is None and len(sizes) > x._ragged_idx and sizes[x._ragged_idx] == -1:
        axis = x._ragged_idx
    if axis is None or axis == 0 or sizes[0] not in (len(x._ragged), -1):
        raise RuntimeError(
            f"{name}(): expected {len(x._ragged)} rows first, then the ragged size, got {tuple(sizes)} for "
            f"shape {tuple(_shape(x))}"
        )
    if math.prod(x._values.shape[: x._ragged_idx - 1]) != math.prod(sizes[1:axis]):
        raise RuntimeError(
            f"{name}(): cannot move the ragged dimension of {tuple(_shape(x))} to {tuple(sizes)}"
        )
    inner = [*sizes[1:axis], x._values.shape[x._ragged_idx - 1], *sizes[axis + 1 :]]
    return _like(x, getattr(x._values, name)(inner), axis)


@rule("unflatten")
def unflatten(_: Any, x: NestedTensor, dim: int, sizes: Any) -> NestedTensor:
    d = _inner("unflatten", x, dim)
    at = x._ragged_idx + (len(sizes) - 1 if d < x._ragged_idx - 1 else 0)
    return _like(x, x._values.unflatten(d, sizes), at)


@rule("flatten")
def flatten(_: Any, x: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> NestedTensor:
    a, b = _dim("flatten", x, start_dim), _dim("flatten", x, end_dim)
    if a == b:
        return x
    if a <= x._ragged_idx <= b or a == 0:
        raise RuntimeError("flatten(): not supported for NestedTensor on dim=0 or ragged dim")
    return _like(x, x._values.flatten(a - 1, b - 1), x._ragged_idx - (b - a if b < x._ragged_idx else 0))


@rule("unsqueeze")
def unsqueeze(_: Any, x: NestedTensor, dim: int) -> NestedTensor:
    n = _rank(x) + 1
    if not -n <= dim < n:
        raise IndexError(f"unsqueeze: Dimension out of range (expected in [{-n}, {n - 1}], but got {dim})")
    d = dim % n
    if d == 0:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    return _like(x, x._values.unsqueeze(d - 1), x._ragged_idx + (d <= x._ragged_idx))


@rule("squeeze")
def squeeze(_: Any, x: NestedTensor, dim: Any = None) -> NestedTensor:
    if dim is None:
        raise RuntimeError("squeeze(): expected dim for a nested tensor")
    removed = sorted(_inner("squeeze", x, d) for d in ([dim] if isinstance(dim, int) else dim))
    removed = [d for d in removed if x._values.shape[d] == 1]
    return _like(x, x._values.squeeze(removed), x._ragged_idx - sum(d < x._ragged_idx - 1 for d in removed))


@rule("select")
def select(_: Any, x: NestedTensor, dim: int, index: int) -> Tensor:
    d = _dim("select", x, dim)
    if d == 0:
        return x.unbind()[index]
    if d == x._ragged_idx:
        return _of_each_row(x, index)
    return _like(x, x._values.select(d - 1, index), x._ragged_idx - (d < x._ragged_idx))


@rule("narrow")
def narrow(_: Any, x: NestedTensor, dim: int, start: int, length: int) -> NestedTensor:
    return _like(x, x._values.narrow(_inner("narrow", x, dim), start, length))


@rule("chunk", "split", "tensor_split")
def parts(func: Callable, x: NestedTensor, how: Any, dim: int = 0) -> tuple:
    if _dim(func.__name__, x, dim) != 0:
        pieces = getattr(x._values, func.__name__)(how, _inner(func.__name__, x, dim))
        return tuple(_like(x, y) for y in pieces)
    rows = x.unbind()
    groups = getattr(_f.arange(len(rows)), func.__name__)(how)
    lengths = x._ragged.lengths
    axis = x._ragged_idx
    return tuple(
        _nested(_f.cat([rows[k] for k in g.tolist()], axis - 1), ragged_of(lengths[g]), axis) for g in groups
    )


@rule("cat", "concat", "concatenate")
def cat(func: Callable, tensors: Any, dim: int = 0) -> NestedTensor:
    first = tensors[0]
    same = all(isinstance(t, NestedTensor) and t._ragged is first._ragged for t in tensors)
    if not same or any(t._ragged_idx != first._ragged_idx for t in tensors):
        raise RuntimeError("cat(): expected nested tensors that share their offsets")
    return _like(first, func([t._values for t in tensors], _inner("cat", first, dim)))


@rule("expand")
def expand(_: Any, x: NestedTensor, *shape: Any) -> NestedTensor:
    sizes = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
    if len(sizes) != _rank(x) or sizes[0] not in (len(x._ragged), -1):
        raise RuntimeError(f"expand(): cannot expand shape {tuple(_shape(x))} to {tuple(sizes)}")
    if sizes[x._ragged_idx] is x._ragged:
        sizes[x._ragged_idx] = -1
    if sizes[x._ragged_idx] != -1:
        raise RuntimeError("expand(): not supported for NestedTensor on ragged dim")
    return _like(x, x._values.expand(sizes[1:]))


def _of_each_row(x: NestedTensor, index: int) -> Tensor:
    """Returns element ``index`` of every row."""
    lengths = x._ragged.lengths
    if len(lengths) and not -int(lengths.min()) <= index < int(lengths.min()):
        raise IndexError(f"index {index} is out of range of rows of {int(lengths.min())} elements")
    at = x._ragged.begins + index if index >= 0 else x._ragged.ends + index
    d = x._ragged_idx - 1
    return x._values.index_select(d, at).movedim(d, 0)


@rule("__getitem__")
def getitem(_: Any, x: NestedTensor, index: Any) -> Tensor:
    indices = list(index) if isinstance(index, tuple) else [index]
    if any(not (isinstance(i, (int, slice)) or i is Ellipsis) for i in indices):
        raise NotImplementedError("indexing: nested tensors take integers, slices and ..., got other indices")
    if Ellipsis in indices:
        k = indices.index(Ellipsis)
        indices[k : k + 1] = [slice(None)] * (_rank(x) - len(indices) + 1)
    if len(indices) > _rank(x):
        raise IndexError(f"too many indices for tensor of dimension {_rank(x)}")
    if isinstance(indices[0], int):
        if not -len(x._ragged) <= indices[0] < len(x._ragged):
            raise IndexError(
                f"index {indices[0]} is out of bounds for dimension 0 with size {len(x._ragged)}"
            )
        row = x.unbind()[indices[0]]
        return row[tuple(indices[1:])] if indices[1:] else row
    everything = slice(None)
    if indices[0] != everything:
        raise RuntimeError("slice(): not supported for NestedTensor on dim=0")
    indices += [everything] * (_rank(x) - len(indices))
    at = indices[x._ragged_idx]
    if isinstance(at, int):
        y = _of_each_row(x, at)
        rest = [i for k, i in enumerate(indices) if k not in (0, x._ragged_idx)]
        return y[(everything, *rest)]
    if at != everything:
        raise RuntimeError("slice(): not supported for NestedTensor on ragged dim")
    removed = sum(isinstance(i, int) for i in indices[1 : x._ragged_idx])
    return _like(x, x._values[tuple(indices[1:])], x._ragged_idx - removed)
