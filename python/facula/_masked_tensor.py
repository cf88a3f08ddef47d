"""MaskedTensor: a tensor with a mask of its valid elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _C, _namespace

Tensor = _C.Tensor
f = _C.functions

_UNARY = frozenset(
    """abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan atanh arctanh
    bitwise_not ceil
    clamp clip conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac lgamma
    log log10 log1p
    log2 logit i0 isnan nan_to_num neg negative positive pow rad2deg reciprocal round rsqrt sigmoid sign sgn
    signbit sin
    sinc sinh sqrt square tan tanh trunc relu gelu silu clone contiguous to float double half bfloat16 int
    long bool type detach logical_not dropout""".split()
)
_BINARY = frozenset(
    """add atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift div divide
    floor_divide
    fmod logaddexp logaddexp2 mul multiply nextafter remainder sub subtract true_divide eq ne le ge greater
    greater_equal gt less_equal lt less maximum minimum fmax fmin not_equal""".split()
)
_REDUCED = frozenset("sum mean amin amax argmin argmax prod all std var norm".split())
_NORMALISED = frozenset("softmax log_softmax softmin normalize".split())
_VIEWS = frozenset(
    """view reshape transpose t permute expand expand_as unsqueeze squeeze select narrow flatten unflatten
    movedim swapaxes
    swapdims __getitem__ index_select diagonal ravel view_as reshape_as T mT roll flip tile repeat unfold
    chunk split unbind tensor_split""".split()
)


def _is_masked(x: Any) -> bool:
    return isinstance(x, MaskedTensor)


def _data(x: Any) -> Any:
    return x._masked_data if _is_masked(x) else x


def _refused(func: Callable) -> TypeError:
    name = getattr(func, "__name__", str(func))
    return TypeError(
        f"no implementation found for '{name}' on MaskedTensor\n  hint: get_data(), get_mask() and "
        f"to_tensor(value) give "
        "tensors that all functions take"
    )


class MaskedTensor(Tensor):
    """The elements of ``data`` where ``mask`` is True. Element-wise functions keep the mask, and require
    equal masks of two masked tensors; reductions ignore masked elements, and so do gradients.

    >>> facula.masked.MaskedTensor(facula.tensor([1.0, 2.0, 3.0]), facula.tensor([True, False, True])).sum()
    MaskedTensor(  4.0000, True)
    """

    _masked_data: Tensor
    _masked_mask: Tensor

    @staticmethod
    def __new__(cls: Any, data: Any, mask: Any, requires_grad: bool = False) -> Any:
        _check(data, mask)
        data = data.detach() if requires_grad else data
        return _masked(data.clone().requires_grad_() if requires_grad else data, mask)

    def __init__(self, data: Any, mask: Any, requires_grad: bool = False) -> None:
        pass

    def get_data(self) -> Tensor:
        """Returns all elements, including masked ones."""
        return self._masked_data

    def get_mask(self) -> Tensor:
        """Returns the mask: True for valid elements."""
        return self._masked_mask

    def to_tensor(self, value: Any) -> Tensor:
        """Returns the elements, with ``value`` in place of masked ones."""
        return self._masked_data.masked_fill(~self._masked_mask, value)

    def __repr__(self) -> str:  # type: ignore[override]
        if self._masked_data.dim() == 0:
            there = bool(self._masked_mask)
            return f"MaskedTensor({_shown(self._masked_data.item()) if there else '--'}, {there})"
        return "MaskedTensor(\n" + "\n".join(_lines(self._masked_data.detach(), self._masked_mask, 1)) + "\n)"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            name = getattr(getattr(func, "__self__", None), "__name__", "")
            if name == "grad":
                return _gradient(args, func.__name__)
            if name not in _VIEWS:  # metadata, which is that of the data
                return func(*(_data(a) for a in args), **kwargs)
        result = _computed(func, name.strip("_") if name not in _VIEWS else name, args, kwargs)
        if result is NotImplemented:
            raise _refused(func)
        return result


def _masked(data: Tensor, mask: Tensor) -> MaskedTensor:
    masked = _C.make_subclass(MaskedTensor, data.detach())
    masked.__dict__.update(_masked_data=data, _masked_mask=mask)
    return masked


def _check(data: Any, mask: Any) -> None:
    if not isinstance(data, Tensor):
        raise TypeError("data must be a Tensor")
    if not isinstance(mask, Tensor):
        raise TypeError("mask must be a Tensor")
    if data.dtype == _C.float16 or not (data.dtype.is_floating_point or data.dtype in _INTEGERS):
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if mask.dtype != _C.bool:
        raise TypeError("mask must have dtype bool.")
    if data.layout is not _C.strided or mask.layout is not _C.strided:
        raise NotImplementedError(
            f"masked_tensor: data and mask must be strided, got {data.layout} and {mask.layout}\n"
            "  hint: data.to_dense() and mask.to_dense() have the same elements"
        )
    if data.dim() != mask.dim():
        raise ValueError("data.dim() must equal mask.dim()")
    if data.size() != mask.size():
        raise ValueError("data.size() must equal mask.size()")


_INTEGERS = (_C.bool, _C.int8, _C.int16, _C.int32, _C.int64)


def _gradient(args: tuple, how: str) -> Any:
    masked = args[0]
    if how == "__set__":
        masked._masked_data.grad = None if args[1] is None else _data(args[1])
        return None
    grad = masked._masked_data.grad
    return None if grad is None else _masked(grad, masked._masked_mask)


def _mask_of_both(args: tuple) -> Tensor:
    masks = [a._masked_mask for a in args[:2] if _is_masked(a)]
    if len(masks) == 2 and not (masks[0].shape == masks[1].shape and bool((masks[0] == masks[1]).all())):
        raise ValueError(
            "Input masks must match. If you need support for this, please open an issue on Github."
        )
    return masks[0]


def _reduced(name: str, x: MaskedTensor, args: tuple, kwargs: dict) -> Any:
    from . import masked

    data, mask = x._masked_data, x._masked_mask
    dim = args[0] if args else kwargs.get("dim")
    if name == "all":
        reduced = (data.bool() | ~mask).all() if dim is None else (data.bool() | ~mask).all(dim, *args[1:])
    else:
        reduced = getattr(masked, name)(data, *args, mask=mask, **kwargs)
    keepdim = reduced.dim() == data.dim() and data.dim() > 0
    if dim is None or dim == ():
        there = mask.any()
        return _masked(reduced, there.reshape(reduced.shape) if keepdim else there)
    for d in sorted({d % data.dim() for d in ([dim] if isinstance(dim, int) else dim)}, reverse=True):
        mask = mask.any(d, keepdim=keepdim)
    return _masked(reduced, mask)


def _viewed(func: Callable, args: tuple, kwargs: dict) -> Any:
    def mask(a: Any) -> Any:
        return a._masked_mask if _is_masked(a) else a

    datas, masks = func(*map(_data, args), **kwargs), func(*map(mask, args), **kwargs)
    if isinstance(datas, (tuple, list)):
        return tuple(map(_masked, datas, masks))
    return _masked(datas, masks)


def _computed(func: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """Computes a function of masked tensors; NotImplemented if it is not supported."""
    from . import masked

    first = args[0] if args else None
    in_place = getattr(func, "__name__", "").endswith("_") and not func.__name__.startswith("__")
    if name in (
        "backward",
        "requires_grad",
        "is_floating_point",
        "size",
        "stride",
        "dim",
        "numel",
        "item",
        "len",
    ):
        return func(*map(_data, args), **kwargs)
    if name in ("cat", "stack"):
        items = [x if _is_masked(x) else _masked(x, f.ones_like(x, dtype=_C.bool)) for x in first]  # type: ignore[union-attr]
        more = (args[1:], kwargs)
        return _masked(
            func([x._masked_data for x in items], *more[0], **more[1]),
            func([x._masked_mask for x in items], *more[0], **more[1]),
        )
    if name == "where" and len(args) == 3:
        condition, *both = args
        masks = [x._masked_mask if _is_masked(x) else f.ones_like(condition) for x in both]
        return _masked(f.where(condition, *map(_data, both)), f.where(condition, *masks))
    if name in _VIEWS:
        return _viewed(func, args, kwargs)
    if not any(map(_is_masked, args)):
        return NotImplemented
    if name in _BINARY | {"radd", "rmul", "truediv", "iadd", "imul", "isub", "itruediv"}:
        mask = _mask_of_both(args)
    elif name in _UNARY:
        mask = first._masked_mask  # type: ignore[union-attr]
    elif name in _REDUCED and _is_masked(first):
        return _reduced(name, first, args[1:], kwargs)  # type: ignore[arg-type]
    elif name in _NORMALISED and _is_masked(first):
        options = {k: v for k, v in kwargs.items() if k not in ("_stacklevel", "input") and v is not None}
        args = args[:2] if name != "normalize" else args
        normalised = getattr(masked, name)(first._masked_data, *args[1:], mask=first._masked_mask, **options)  # type: ignore[union-attr]
        return _masked(normalised, first._masked_mask)  # type: ignore[union-attr]
    else:
        return NotImplemented
    result = func(*map(_data, args), **kwargs)
    return first if in_place else _masked(result, mask)


def _shown(x: Any) -> str:
    return f"{x:8.4f}" if isinstance(x, float) else str(x)


def _lines(data: Tensor, mask: Tensor, depth: int) -> list[str]:
    indent = "  " * depth
    if data.dim() == 1:
        shown = [_shown(x) if m else "--".rjust(8) for x, m in zip(data.tolist(), mask.tolist())]
        return [f"{indent}[{', '.join(shown)}]"]
    rows = [_lines(d, m, depth + 1) for d, m in zip(data.unbind(0), mask.unbind(0))]
    for row in rows[:-1]:
        row[-1] += ","
    return [indent + "[", *(line for row in rows for line in row), indent + "]"]


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """Returns a MaskedTensor of these elements, detached from ``data``."""
    return MaskedTensor(data.detach() if isinstance(data, Tensor) else data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """Returns a MaskedTensor of these elements; differentiable with respect to ``data``."""
    _check(data, mask)
    return _masked(data, mask)


def is_masked_tensor(obj: Any, /) -> bool:
    """Returns whether ``obj`` is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


_namespace.overridable(globals(), _namespace.of_tensors)
