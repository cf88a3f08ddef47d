"""Tensors that a module owns."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .. import _C

Tensor = _C.Tensor


class _ParameterMeta(type(Tensor)):
    """``isinstance(t, Parameter)`` is also true for subclasses of Tensor that were marked as parameters."""

    def __instancecheck__(self, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        return self is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


def _marked(data: Tensor, requires_grad: bool) -> Any:
    """A tensor of the same class over the same memory, marked as a parameter."""
    t = data.detach().requires_grad_(requires_grad)
    if type(t) is not type(data):
        raise RuntimeError(
            f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() "
            "returns "
            f"an instance of the same type, but return type {type(t).__name__} was found instead."
        )
    t._is_param = True
    return t


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers when it is assigned as an attribute.

    ``Parameter(data)`` shares the storage of ``data`` and requires gradients unless told otherwise.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = _C.functions.empty(0)
        if cls is Parameter and isinstance(data, Tensor) and type(data) not in (Tensor, Parameter):
            return _marked(data, requires_grad)
        return _C.make_subclass(cls, data, requires_grad)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, object]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[return-value]
        copy = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: int) -> tuple:
        from .._utils import _rebuild_parameter, _rebuild_parameter_with_state

        args, state = (self.data, self.requires_grad, OrderedDict()), self.__getstate__()
        return (_rebuild_parameter_with_state, (*args, state)) if state else (_rebuild_parameter, args)


class Buffer(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers as a buffer when it is assigned as an attribute."""

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = _C.functions.empty(0)
        buffer = _C.make_subclass(cls, data, data.requires_grad)
        buffer.persistent = persistent
        return buffer


_C.set_parameter_class(Parameter)
