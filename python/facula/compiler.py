"""``facula.compile`` and what programs ask about it."""

from __future__ import annotations

import warnings
from typing import Any


def compile(model: Any = None, **options: Any) -> Any:
    """The function or module itself, with a warning: every operator is compiled in eager already, but
    operators of a program are not fused with each other yet. Also a decorator, with or without options.

    >>> facula.compile(facula.nn.ReLU())(facula.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    warnings.warn(
        "compile: operators are compiled one by one, and not yet fused over a program: it runs as in eager",
        stacklevel=2,
    )
    if model is None:
        return lambda f: f
    if not callable(model):
        raise TypeError(f"compile: expected a function or a module, not {type(model).__name__}")
    return model


def is_compiling() -> bool:
    return False


def is_dynamo_compiling() -> bool:
    return False


def is_exporting() -> bool:
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function itself, as a decorator with or without arguments."""
    return fn if callable(fn) else lambda f: f


def reset() -> None:
    """Nothing to forget."""


def allow_in_graph(fn: Any) -> Any:
    """The function itself: a mark for programs that are compiled as a whole."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself."""
    return fn


_STANCES = ("default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile",
            "fail_on_recompile")  # fmt: skip


class set_stance:
    """How ``compile`` treats calls, from now on or within a ``with`` block: all run as in eager."""

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{stance}', expected one of {_STANCES}")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None

    def __call__(self, fn: Any) -> Any:
        return fn


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """None: there is one way to run."""
    return []


def substitute_in_graph(original_fn: Any, **options: Any) -> Any:
    """The decorated function itself: nothing is captured that it would stand for."""
    return lambda fn: fn


def wrap_numpy(fn: Any) -> Any:
    """``fn``, a function of NumPy arrays, on tensors.

    >>> facula.compiler.wrap_numpy(lambda a: a + 1)(facula.tensor([1]))
    tensor([2])
    """
    import functools

    from .utils._pytree import tree_map

    def array(x: Any) -> Any:
        return x.detach().numpy() if hasattr(x, "numpy") else x

    def tensor(x: Any) -> Any:
        import numpy

        from . import _C

        return _C.tensor(x) if isinstance(x, (numpy.ndarray, numpy.generic)) else x

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = tree_map(array, (list(args), kwargs))
        return tree_map(tensor, fn(*given[0], **given[1]))

    return wrapped


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """The function itself: a mark for programs that are compiled as a whole."""
    return fn if callable(fn) else lambda f: f


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark without CUDA."""
