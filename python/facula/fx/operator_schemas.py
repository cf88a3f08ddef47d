"""Binding of arguments to parameter names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["ArgsKwargsPair", "normalize_function", "normalize_module"]


class ArgsKwargsPair(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _bound(
    signature: inspect.Signature, args: tuple, kwargs: dict, only_kwargs: bool
) -> ArgsKwargsPair | None:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(p.kind in variable for p in signature.parameters.values()):
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    if only_kwargs:
        return ArgsKwargsPair((), dict(bound.arguments))
    positional = tuple(bound.arguments[n] for n in list(signature.parameters)[: len(args)])
    rest = {n: v for k, (n, v) in enumerate(bound.arguments.items()) if k >= len(args)}
    return ArgsKwargsPair(positional, rest)


def normalize_function(
    target: Callable,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Returns the arguments by parameter names, with defaults; None if the signature is unknown."""
    try:
        signature = inspect.signature(inspect.unwrap(target))
    except (TypeError, ValueError):
        return None
    return _bound(signature, args, kwargs or {}, normalize_to_only_use_kwargs)


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Returns the same for the forward of a submodule."""
    try:
        module = root.get_submodule(target)
    except AttributeError as e:
        raise RuntimeError(
            f"Tried to normalize arguments of module {target} but root has no such submodule"
        ) from e
    return _bound(inspect.signature(module.forward), args, kwargs or {}, normalize_to_only_use_kwargs)
