"""The former class of tensors with gradients."""

from __future__ import annotations

from typing import Any

from .. import _C

__all__ = ["Variable", "VariableMeta"]

Tensor = _C.Tensor


class VariableMeta(type):
    """Makes every tensor an instance of Variable."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)

    def __call__(cls, data: Any = None, requires_grad: bool = False, volatile: Any = None) -> Any:
        if data is None:
            return _C.functions.empty([0])
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


class Variable(metaclass=VariableMeta):
    """``Variable(t, requires_grad=True)``: the tensor as a leaf, detached from its history.

    >>> facula.autograd.Variable(facula.ones(1), requires_grad=True)
    tensor([1.], requires_grad=True)
    """
