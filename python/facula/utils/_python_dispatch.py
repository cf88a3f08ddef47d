"""Modes and classes that receive calls below the tape: their ``__torch_dispatch__`` sees every operator
that is computed, in the forward and in the backward pass, as an overload such as
``facula.ops.aten.mm.default``.

>>> class Logged(TorchDispatchMode):
...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
...         print(func)
...         return func(*args, **(kwargs or {}))
>>> with Logged():
...     _ = facula.ones(2) + 1
aten.ones.default
aten.add.Tensor
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from .. import _C
from .._ops import OpOverload
from ._pytree import tree_leaves

__all__ = [
    "AliasInfo",
    "BaseTorchDispatchMode",
    "SchemaInfo",
    "TensorWithFlatten",
    "TorchDispatchMode",
    "TraceableWrapperSubclass",
    "any_torch_dispatch_mode_on_stack",
    "autograd_would_have_decomposed",
    "get_alias_info",
    "is_in_any_mode_without_ignore_compile_internals",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
    "transform_subclass",
]

Tensor = _C.Tensor


class _Entered(threading.local):
    """The modes whose ``with`` blocks this thread has entered, including one that is handling a call."""

    modes: list[Any] = []


_entered = _Entered()


class TorchDispatchMode:
    """Within the ``with`` block, ``__torch_dispatch__(func, types, args, kwargs)`` of this object
    receives every operator call of this thread, below autograd. Its return value is the result of the
    call, and the gradient is the operator's. Calls that it makes itself are not recorded and go to the
    next outer mode.

    Functions that PyTorch composes of operators appear as these operators.
    """

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key: Any = None) -> None:
        if _dispatch_key is not None:
            raise NotImplementedError(
                "TorchDispatchMode: modes of another dispatch key than Python's are not there"
            )

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__")

    def __enter__(self) -> Any:
        _C.push_torch_dispatch_mode(self)
        _entered.modes = [*_entered.modes, self]
        return self

    def __exit__(self, *exc: object) -> None:
        _C.pop_torch_dispatch_mode()
        _entered.modes = _entered.modes[:-1]

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """Creates a mode, which the caller enters."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> Any:
    """Returns the mode that receives the next call, or None."""
    stack = _C.torch_dispatch_modes()
    return stack[-1] if stack else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """Returns the modes of this thread, the innermost last."""
    return _C.torch_dispatch_modes()


@contextlib.contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    mode = _C.pop_torch_dispatch_mode()
    try:
        yield mode
    finally:
        if mode is not None:
            _C.push_torch_dispatch_mode(mode)


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """Disables all modes within the ``with`` block."""
    modes = _C.torch_dispatch_modes()
    for _ in modes:
        _C.pop_torch_dispatch_mode()
    try:
        yield modes
    finally:
        for m in modes:
            _C.push_torch_dispatch_mode(m)


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Returns whether this thread is inside of a mode's block."""
    return bool(_entered.modes)


def any_torch_dispatch_mode_on_stack(include_infra_modes: bool = True) -> bool:
    return is_in_torch_dispatch_mode(include_infra_modes)


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    return any(not m.ignore_compile_internals() for m in _entered.modes)


class TensorWithFlatten(Protocol):
    """A tensor class that consists of inner tensors and names them."""

    def __tensor_flatten__(self) -> tuple[list[str], Any]: ...

    @staticmethod
    def __tensor_unflatten__(
        inner_tensors: Any, flatten_spec: Any, outer_size: Any, outer_stride: Any
    ) -> Any: ...


TraceableWrapperSubclass = TensorWithFlatten


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Returns whether ``t`` is a subclass of Tensor that names its inner tensors."""
    return (
        t is not Tensor
        and isinstance(t, type)
        and issubclass(t, Tensor)
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Returns whether ``t`` is a tensor that names its inner tensors."""
    return is_traceable_wrapper_subclass_type(type(t))


def transform_subclass(
    t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """Rebuilds ``t`` from the results of ``callback(name, tensor)`` for each of its inner tensors."""
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    rebuilt = type(t).__tensor_unflatten__(inner, context, size, stride)
    if tuple(rebuilt.shape) != tuple(size):
        raise AssertionError(
            f"Expected return value from {type(t)}__tensor_unflatten__() to have shape equal to {size}, "
            f"but got: "
            f"{rebuilt.shape}"
        )
    if tuple(rebuilt.stride()) != tuple(stride):
        raise AssertionError(
            f"Expected return value from {type(t)}__tensor_unflatten__() to have stride equal to "
            f"{stride}, but "
            f"got: {rebuilt.stride()}"
        )
    return rebuilt


# ---- aliases between arguments and results, by the schema


@dataclass
class AliasInfo:
    """An argument or result: the names of its alias sets, and whether it is written."""

    alias_set: set[str]
    is_write: bool
    name: str


@dataclass
class SchemaInfo:
    args: list[AliasInfo]
    outs: list[AliasInfo]
    is_inplace_view_op: bool = False


@functools.cache
def get_alias_info(func: OpOverload) -> SchemaInfo:
    """Returns the schema's aliasing of arguments and results."""
    schema, in_place = func._schema, func._opname.endswith("_")
    args = [AliasInfo({"a"} if a.is_alias else set(), a.is_write, a.name) for a in schema.arguments]
    outs = [AliasInfo({"a"} if r.is_alias else set(), r.is_write, "") for r in schema.returns]
    # a derived in-place form, whose schema does not name the alias
    if in_place and args and outs and not args[0].is_write:
        args[0], outs[0] = AliasInfo({"a"}, True, args[0].name), AliasInfo({"a"}, True, "")
    return SchemaInfo(args, outs)


def _share_memory(result: Any, argument: Any) -> None:
    for t in (result, argument):
        if not isinstance(t, Tensor):
            return
    _C.set_shared_memory(result, argument)


def return_and_correct_aliasing(func: OpOverload, args: Any, kwargs: Any, out: Any) -> Any:
    """Returns what a class's ``__torch_dispatch__`` should return: the argument itself if the operator
    writes it, and results of views as aliases of the argument's memory.
    """
    info = get_alias_info(func)
    names = [a.name for a in func._schema.arguments]
    arguments = dict(zip(names, args)) | dict(kwargs or {})
    results = list(out) if isinstance(out, (list, tuple)) else [out]
    if func.is_view:
        for r in results:
            for a in info.args:
                if a.alias_set and not a.is_write and is_traceable_wrapper_subclass(arguments.get(a.name)):
                    _share_memory(r, arguments[a.name])
    written = [a for a in info.args if a.is_write and a.name in arguments]
    if "out" in arguments and not written:
        return arguments["out"]
    if not written or not any(o.is_write for o in info.outs):
        return out
    if len(results) == 1:
        return arguments[written[0].name]
    return type(out)([arguments[a.name] for a in written])


def autograd_would_have_decomposed(func: OpOverload, flat_args: Any) -> bool:
    """Returns whether autograd would record this call as calls of its parts."""
    return func._can_decompose() and any(
        isinstance(a, Tensor) and a.requires_grad for a in tree_leaves(flat_args)
    )
