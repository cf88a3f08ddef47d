"""Fakes of C++ classes: Python classes that know the sizes and dtypes of what the methods of a class return.

While a function is traced, the methods of an object are not run; the program calls them when it runs. What
they return then is a tensor like the one that the method of the fake returns.

>>> @facula._library.register_fake_class("mine::Queue")  # doctest: +SKIP
... class FakeQueue:
...     def __init__(self, items):
...         self.items = items
...     @classmethod
...     def __obj_unflatten__(cls, flattened):
...         return cls(**dict(flattened))
...     def push(self, x):
...         self.items.append(x)
...     def pop(self):
...         return self.items.pop(0)

``__obj_flatten__`` of the C++ class returns what ``__obj_unflatten__`` takes: a tuple of (name, value).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from .._modes import no_grad
from .._ops import _announce, ops
from ..utils._pytree import tree_map

__all__ = ["deregister_fake_class", "find_fake_class", "has_fake_class", "recorded", "register_fake_class"]

Tensor = _C.Tensor
_fakes: dict[str, type] = {}  # by "namespace.Class"
_announced: set[str] = set()


def _class_name(qualname: str) -> str:
    namespace, sep, name = qualname.partition("::")
    if not (sep and namespace.isidentifier() and name.isidentifier()):
        raise ValueError(f"register_fake_class: expected 'namespace::Class', got {qualname!r}")
    return f"{namespace}.{name}"


def register_fake_class(qualname: str, fake_class: type | None = None) -> Any:
    """Registers the fake of a C++ class, named ``"namespace::Class"``; without ``fake_class``, a decorator.

    The library of the class has to be loaded. Raises RuntimeError if the fake has no ``__obj_unflatten__``.
    """
    name = _class_name(qualname)

    def register(fake: type) -> type:
        _C.class_facts(*name.split("."))  # raises if there is no such class
        if not callable(getattr(fake, "__obj_unflatten__", None)):
            raise RuntimeError(
                f"{fake.__name__} doesn't define an __obj_unflatten__, which makes an object of what "
                f"__obj_flatten__ of {qualname} returns\n  hint: add a classmethod "
                "__obj_unflatten__(cls, flattened)"
            )
        _fakes[name] = fake
        return fake

    return register if fake_class is None else register(fake_class)


def deregister_fake_class(qualname: str) -> type | None:
    """Forgets a fake, and returns it."""
    return _fakes.pop(_class_name(qualname), None)


def has_fake_class(full_qualname: str) -> bool:
    """Tells whether a class, named ``"__torch__.torch.classes.namespace.Class"``, has a fake."""
    return find_fake_class(full_qualname) is not None


def find_fake_class(full_qualname: str) -> type | None:
    """Returns the fake of a class, named ``"__torch__.torch.classes.namespace.Class"``, or None."""
    return _fakes.get(full_qualname.removeprefix("__torch__.torch.classes."))


# ---- calls of methods while a function is traced


def _like(x: Any) -> Any:
    """Returns a tensor of the trace like ``x``, without its elements."""
    if not isinstance(x, Tensor):
        return x
    return _C.functions.empty_strided(list(x.shape), list(x.stride()), dtype=x.dtype)


def _fake_of(x: Any, fakes: dict[int, Any]) -> Any:
    """Returns the fake of an object during this trace; None if its class has none."""
    if x._identity() in fakes:
        return fakes[x._identity()][0]
    kind = _fakes.get(f"{x._namespace}.{x._class_name}")
    fake = None
    if kind is not None:
        flatten = getattr(x, "__obj_flatten__", None)
        if flatten is None:
            raise RuntimeError(
                f"the class {x._namespace}.{x._class_name} has no method __obj_flatten__, which its fake "
                "needs\n  hint: add one that returns a tuple of (name, value) for each part of its state"
            )
        state = _C.outside_of_trace(x._call, "__obj_flatten__", (), {})
        fake = kind.__obj_unflatten__(tree_map(_like, state))  # type: ignore[attr-defined]
    fakes[x._identity()] = fake, x
    return fake


def _faked(x: Any, method: str, args: tuple, returns: bool, fakes: dict[int, Any]) -> Any:
    """Calls the method of the fake of ``x``; the calls that it makes are dead code of the program."""
    qualified = f"{x._namespace}.{x._class_name}.{method}"
    fake = _fake_of(x, fakes)
    if fake is None and not returns:
        return None
    call: Callable | None = getattr(fake, method, None)
    if call is None:
        lacks = "has no fake" if fake is None else f"has the fake {type(fake).__name__} without this method"
        raise RuntimeError(
            f"{qualified} is called while a function is traced, and its class {lacks}, so that the sizes of "
            f"its result are not known\n  hint: register one with "
            f"{_C.package_name()}._library.register_fake_class('{x._namespace}::{x._class_name}', ...)"
        )

    def shown(v: Any) -> Any:
        return (_fake_of(v, fakes) or v) if isinstance(v, _C.ScriptObject) else v

    with no_grad():
        return call(*(tree_map(shown, a) for a in args))


def recorded(x: Any, fact: tuple, args: tuple, kwargs: dict, fakes: dict[int, Any]) -> Any:
    """Records a call of a method of ``x``, which ``fact`` describes, as one of the method's operator."""
    name, _, _, _, returned = fact
    qualified = f"{x._namespace}.{x._class_name}.{name}"
    operator, arguments = x._recordable(name, args, kwargs)
    if operator not in _announced:
        _announced.add(operator)
        _announce([operator])
    result = _faked(x, name, tuple(arguments), returned != "()", fakes)
    number = returned in ("int", "float", "bool")
    if number:
        dtype = {"int": _C.int64, "float": _C.float64, "bool": _C.bool}[returned]
        tensors = [_C.functions.empty((), dtype=dtype)]
    else:
        tensors = [result] if isinstance(result, Tensor) else list(result or ())
    if not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"the fake of {qualified} returned {result!r}, and the method returns {returned}")
    packet = getattr(getattr(ops, x._namespace), x._class_name)
    value = getattr(packet, name)(
        x,
        *arguments,
        result_sizes=[n for t in tensors for n in t.shape],
        result_types=", ".join(f"{str(t.dtype).rpartition('.')[2]}[{t.dim()}]" for t in tensors),
    )
    if not number:
        return value
    from ..program import require

    text = f"{qualified}() returned {result!r} when the program was traced, and returns another value now"
    require(value == result, RuntimeError, text)
    return result
