from __future__ import annotations

from typing import Any

from .node import _untraced

__all__ = [
    "Attribute",
    "ParameterProxy",
    "Proxy",
    "TraceError",
    "Tracer",
    "is_fx_tracing",
    "symbolic_trace",
    "wrap",
]


class TraceError(ValueError):
    pass


class Proxy:
    """Stands for a value while a program is traced; ``isinstance(x, Proxy)`` is False, as nothing is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _untraced("fx." + type(self).__name__)


class Attribute(Proxy):
    pass


class ParameterProxy(Proxy):
    pass


class TracerBase:
    pass


class Tracer(TracerBase):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def trace(self, root: Any, concrete_args: Any = None) -> Any:
        _untraced("fx.Tracer.trace")


def symbolic_trace(root: Any, concrete_args: Any = None) -> Any:
    _untraced("fx.symbolic_trace")


def is_fx_tracing() -> bool:
    return False


def wrap(fn_or_name: Any) -> Any:
    """Marks a function, or a name of the calling module, that tracing would not enter: gives it back."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    return fn_or_name
