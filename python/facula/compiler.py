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


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark without CUDA."""
