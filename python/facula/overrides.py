"""``__torch_function__``: classes that override Facula's functions, whether they are subclasses of Tensor
or not.

>>> class Logged(facula.Tensor):
...     @classmethod
...     def __torch_function__(cls, func, types, args=(), kwargs=None):
...         print(facula.overrides.resolve_name(func))
...         return super().__torch_function__(func, types, args, kwargs or {})
>>> _ = facula.ones(2).as_subclass(Logged).exp()
facula.Tensor.exp
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

from . import _C

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

Tensor = _C.Tensor
DisableTorchFunction = _C.DisableTorchFunction
DisableTorchFunctionSubclass = _C.DisableTorchFunctionSubclass
handle_torch_function = _C.handle_torch_function


_next = threading.local()  # .skipped: the function that redispatch_function calls is not overridden


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Returns whether one of these arguments, or a mode, overrides ``__torch_function__``."""
    if getattr(_next, "skipped", False):
        _next.skipped = False
        return False
    return _C.has_torch_function(relevant_args)


def has_torch_function_unary(tensor: object) -> bool:
    """Returns whether this argument, or a mode, overrides ``__torch_function__``."""
    return has_torch_function((tensor,))


def has_torch_function_variadic(*args: object) -> bool:
    """Returns whether one of these arguments, or a mode, overrides ``__torch_function__``."""
    return has_torch_function(args)


def is_tensor_like(inp: object) -> bool:
    """Returns whether ``inp`` is a Tensor, or of a class with ``__torch_function__``."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def wrap_torch_function(dispatcher: Callable[..., Iterable]) -> Callable:
    """Decorates a function so that arguments may override it; ``dispatcher``, called with the same
    arguments, returns the candidates.
    """

    def inner(func: Callable) -> Callable:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if _C.has_torch_function(relevant):
                return _C.handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


class TorchFunctionMode:
    """Within the ``with`` block, ``__torch_function__(func, types, args, kwargs)`` of this object
    receives every call of an operator or overridable function; calls that it makes itself go to the next
    outer mode.
    """

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_function__")

    def __enter__(self) -> TorchFunctionMode:
        _C.push_torch_function_mode(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _C.pop_torch_function_mode()


class BaseTorchFunctionMode(TorchFunctionMode):
    """Executes calls unchanged: a base of modes that change some calls."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _public(names: Iterable[str]) -> list[str]:
    return sorted(n for n in names if not n.startswith("_"))


@functools.cache
def _names() -> dict[Any, str]:
    import facula
    from facula.nn import functional

    named: dict[Any, str] = {}
    modules = [
        ("facula", _C.functions),
        ("facula", facula),
        ("facula.fft", facula.fft),
        ("facula.linalg", facula.linalg),
    ]
    modules += [("facula.special", facula.special), ("facula.nn.functional", functional)]
    kinds = (type(_C.functions.add), _C.Overridable)
    for prefix, module in modules:
        for n in _public(vars(module)):
            f = getattr(module, n)
            if isinstance(f, kinds) or getattr(f, "asks_overrides", False):
                named.setdefault(f, f"{prefix}.{n}")
    for n, d in vars(Tensor).items():
        if hasattr(d, "__set__"):
            named.setdefault(d.__get__, f"facula.Tensor.{n}.__get__")  # an alias comes after its property
            named.setdefault(d.__set__, f"facula.Tensor.{n}.__set__")
        elif callable(d):
            named.setdefault(d, f"facula.Tensor.{n}")
    return named


def resolve_name(f: Callable) -> str | None:
    """Returns the name of an overridable function, such as ``facula.Tensor.add``."""
    import facula

    try:
        name = _names().get(f)
    except TypeError:
        return None
    return name and facula.__name__ + name.removeprefix("facula")  # torch behind the alias


def is_tensor_method_or_property(func: Callable) -> bool:
    """Returns whether ``func`` is a method or property of Tensor."""
    try:
        return _names().get(func, "").startswith("facula.Tensor.")
    except TypeError:
        return False


def get_overridable_functions() -> dict[Any, list[Callable]]:
    """Returns the functions that can be overridden, by the module or class that defines them."""
    import facula
    from facula.nn import functional

    owners = {"facula": facula, "facula.fft": facula.fft, "facula.linalg": facula.linalg}
    owners |= {"facula.special": facula.special, "facula.nn.functional": functional, "facula.Tensor": Tensor}
    functions_by_owner: dict[Any, list[Callable]] = {}
    for f, name in _names().items():
        owner = "facula.Tensor" if name.startswith("facula.Tensor.") else name.rpartition(".")[0]
        functions_by_owner.setdefault(owners[owner], []).append(f)
    return functions_by_owner


def get_testing_overrides() -> dict[Callable, Callable]:
    """Returns, for each overridable function, one with its signature that returns -1."""

    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    return {f: dummy for functions in get_overridable_functions().values() for f in functions}


def redispatch_function(func: Callable, types: Any, args: Any, kwargs: Any) -> Any:
    """Calls ``func`` without its outermost ``__torch_function__``; calls made by Python code are
    overridden again.
    """
    if not isinstance(func, (FunctionType, _C.Overridable)):
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
    if isinstance(func, _C.Overridable):
        return func.__wrapped__(*args, **(kwargs or {}))
    _next.skipped = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _next.skipped = False


def get_default_nowrap_functions() -> set[Callable]:
    """Returns the functions whose results the default ``__torch_function__`` does not wrap."""
    return {vars(Tensor)[n].__get__ for n in ("grad", "_base") if n in vars(Tensor)}


def get_ignored_functions() -> set[Callable]:
    """Returns top-level functions that cannot be overridden: constructors of tensors, and functions
    without tensors.
    """
    import facula

    overridable = {f for fs in get_overridable_functions().values() for f in fs}
    every = (getattr(facula, n) for n in _public(dir(facula)))
    kinds = (type(_names), type(_C.functions.add))
    return {f for f in every if isinstance(f, kinds) and f not in overridable}


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Has no effect: calls within a ``__torch_function__`` are always dispatched again."""
    yield
