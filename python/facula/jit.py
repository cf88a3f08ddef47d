"""Marks for TorchScript, which Facula does without: programs that carry them run unchanged, in eager."""

from __future__ import annotations

from typing import Any, Final, TypeVar  # noqa: F401  (torch.jit.Final)

T = TypeVar("T")


def is_scripting() -> bool:
    return False


def is_tracing() -> bool:
    return False


def ignore(f: Any = None, drop: bool = False, **kwargs: Any) -> Any:
    """Gives the function itself, as a decorator with or without arguments."""
    return f if callable(f) else lambda g: g


def unused(f: T) -> T:
    return f


def export(f: T) -> T:
    return f


def interface(c: T) -> T:
    return c


def _overload_method(f: T) -> T:
    return f


def _script_if_tracing(f: T) -> T:
    return f


def script_if_tracing(f: T) -> T:
    return f


def annotate(the_type: Any, the_value: T) -> T:
    return the_value


def script(obj: T, *args: Any, **kwargs: Any) -> T:
    """The function or module itself: there is one way to run it."""
    return obj


def trace(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("jit.trace: TorchScript programs are not made; save the module's state_dict")
