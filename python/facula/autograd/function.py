"""Functions with gradients that the user defines."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from .. import _C

Tensor = _C.Tensor
FunctionCtx = _C.FunctionCtx

# Callbacks of functions that are being captured (compile), to be run before a computation that cannot be
# recorded call by call.
leaving: list[Callable[[], None]] = []


def leave() -> None:
    if leaving:
        leaving[-1]()


def _left(f: Callable, args: tuple, kwargs: dict) -> Any:
    """Calls ``f(*args, **kwargs)`` without capturing it."""
    capture = leaving.pop()
    try:
        capture()
        with _C.DisableTorchFunction():
            return f(*args, **kwargs)
    finally:
        leaving.append(capture)


class Function(FunctionCtx):
    """Base class: subclasses define static methods, and are called by ``apply``.

    They define ``forward(ctx, *args)``, or ``forward(*args)`` with ``setup_context(ctx, inputs,
    output)``; and ``backward(ctx, *grad_outputs)``, which returns one gradient, or None, for each
    argument of forward.
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

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    vjp = backward

    # Whether vmap runs forward and backward mapped over the batch. Otherwise a static method vmap(info,
    # in_dims, *args), which returns the results and their batch dimensions, defines the rule.
    generate_vmap_rule = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style "
            "autograd "
            f"function with static forward method: {type(self).__name__}.apply(...)"
        )

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Saves tensors for jvp, as ctx.saved_tensors."""
        self._saved_for_forward = tensors

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        if leaving:
            return _left(cls.apply, args, kwargs)
        if cls.setup_context is not Function.setup_context:
            if kwargs or getattr(cls.forward, "__defaults__", None):
                args, kwargs = _with_defaults(cls.forward, args, kwargs)
        if kwargs:
            cls = _with_keywords(cls, kwargs)
        if _C.is_tracing() and (_C.vmap_level() or _C.forward_level()):
            raise NotImplementedError(
                f"{cls.__name__}.apply is called inside of vmap or a dual level while a function is traced: "
                "a program has the gradient that backward gives alone\n  hint: call vmap on the program"
            )
        if _C.vmap_level() and any(isinstance(x, Tensor) and _in_innermost(x) for x in args):
            from .._vmap import apply_function

            return apply_function(cls, args)
        if _C.forward_level():
            return _apply_forward(cls, args)
        return _C.apply_function(cls, *args)


def _in_innermost(x: Tensor) -> bool:
    batch = _C.batch_of(x)
    return batch is not None and batch[0] == _C.vmap_level()


def _with_defaults(f: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Returns all arguments, including defaults, for setup_context and the gradients of backward."""
    import inspect

    bound = inspect.signature(f).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _with_keywords(cls: Any, kwargs: dict) -> Any:
    """Returns ``cls`` with keyword arguments bound to its forward: backward returns no gradients for
    them.
    """

    class Given(cls):
        @staticmethod
        def forward(*args: Any) -> Any:
            return cls.forward(*args, **kwargs)

    Given.__name__, Given.__qualname__ = cls.__name__, cls.__qualname__
    return Given


class _ForwardContext:
    """The ctx of jvp: forward's ctx with the tensors that it saved for jvp."""

    def __init__(self, ctx: Any) -> None:
        self.__dict__["_ctx"] = ctx

    def __getattr__(self, name: str) -> Any:
        if name == "saved_tensors":
            return getattr(self._ctx, "_saved_for_forward", ())
        return getattr(self._ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctx, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._ctx, name)


def _apply_forward(cls: Any, args: tuple) -> Any:
    """Applies the function within a forward level: forward's operators see no tangents, jvp computes
    them.
    """
    tangents = [_C.tangent_of(x) if isinstance(x, Tensor) else None for x in args]
    if all(t is None for t in tangents):
        return _C.apply_function(cls, *args)
    contexts: list = []
    outputs = _C.pause_forward(_C.apply_function, _noting_context(cls, contexts), *args)
    tangents_out = cls.jvp(_ForwardContext(contexts[0]), *tangents)
    single = not isinstance(outputs, tuple)
    results = (outputs,) if single else outputs
    tangents_out = tangents_out if isinstance(tangents_out, tuple) else (tangents_out,)
    if len(tangents_out) != len(results):
        raise RuntimeError(
            f"{cls.__name__}.jvp gave {len(tangents_out)} tangents, but forward gave {len(results)} results"
        )
    for r, t in zip(results, tangents_out):
        if t is not None:
            _C.set_tangent(r, t)
    return outputs


def _noting_context(cls: Any, contexts: list) -> Any:
    """Returns ``cls`` with a forward (or setup_context) that appends its ctx to ``contexts``."""
    separate = cls.setup_context is not Function.setup_context

    class Noting(cls):
        if separate:

            @staticmethod
            def setup_context(ctx: Any, inputs: tuple, output: Any) -> Any:
                contexts.append(ctx)
                return cls.setup_context(ctx, inputs, output)

        else:

            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                contexts.append(ctx)
                return cls.forward(ctx, *args)

    Noting.__name__, Noting.__qualname__ = cls.__name__, cls.__qualname__
    return Noting


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
    """Decorates a ``backward`` that is not differentiable: differentiating its result raises an error."""

    @wraps(backward)
    def f(ctx: Any, *grads: Any) -> Any:
        # a program has to see the inputs, in order to refuse gradients of the result
        with _C.GradMode(_C.is_tracing()):
            result = backward(ctx, *grads)
        if not _C.is_grad_enabled() or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return result
        items = result if isinstance(result, tuple) else (result,)
        at = [
            k
            for k, g in enumerate(items)
            if isinstance(g, Tensor) and (g.is_floating_point() or g.is_complex())
        ]
        traced = _C.is_tracing()
        inputs = [items[k] if traced else items[k].detach().requires_grad_() for k in at]
        guarded = _Once.apply(*inputs) if inputs else ()
        replaced = dict(zip(at, guarded))
        items = tuple(replaced.get(k, g) for k, g in enumerate(items))
        return items if isinstance(result, tuple) else items[0]

    return f


class InplaceFunction(Function):
    """A Function with the attribute ``inplace``, for old programs."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
