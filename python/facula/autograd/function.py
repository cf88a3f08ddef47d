"""Functions whose gradient the user defines."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from .. import _C

Tensor = _C.Tensor
FunctionCtx = _C.FunctionCtx


class Function(FunctionCtx):
    """Subclass with static methods, and call ``apply``.

    Either ``forward(ctx, *args)``, or ``forward(*args)`` with ``setup_context(ctx, inputs, output)``; and
    ``backward(ctx, *grad_outputs)``, which gives one gradient, or None, for each argument of forward.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> Any:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to "
            "use it "
            "with backward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        return _C.apply_function(cls, *args)


class _Once(Function):
    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple:
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def once_differentiable(backward: Callable) -> Callable:
    """For a ``backward`` that is not made of differentiable operations: differentiating its result raises."""

    @wraps(backward)
    def f(ctx: Any, *grads: Any) -> Any:
        with _C.GradMode(False):
            result = backward(ctx, *grads)
        if not _C.is_grad_enabled() or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return result
        items = result if isinstance(result, tuple) else (result,)
        at = [
            k
            for k, g in enumerate(items)
            if isinstance(g, Tensor) and (g.is_floating_point() or g.is_complex())
        ]
        guarded = _Once.apply(*(items[k].detach().requires_grad_() for k in at)) if at else ()
        replaced = dict(zip(at, guarded))
        items = tuple(replaced.get(k, g) for k, g in enumerate(items))
        return items if isinstance(result, tuple) else items[0]

    return f
