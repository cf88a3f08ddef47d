"""Decorators of data pipes: names, determinism and type checks."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

from .datapipe import IterDataPipe, MapDataPipe


class functional_datapipe:
    """Registers a class of pipes as a method of all pipes, under this name."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: type) -> type:
        if issubclass(cls, IterDataPipe):
            IterDataPipe.register_datapipe_as_function(self.name, cls)
        elif issubclass(cls, MapDataPipe):
            MapDataPipe.register_datapipe_as_function(self.name, cls)
        else:
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        return cls


_determinism: list[bool] = [False]


class guaranteed_datapipes_determinism:
    """Within the ``with`` block, creating a pipe that is marked as not deterministic raises an error."""

    def __init__(self) -> None:
        self._before, _determinism[0] = _determinism[0], True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _determinism[0] = self._before


class non_deterministic:
    """Marks a class of pipes as not deterministic; with a predicate of the pipe, only those objects for
    which it is true.
    """

    def __init__(self, arg: Any) -> None:
        self._class = arg if isinstance(arg, type) else None
        self._asked: Callable[..., bool] = (lambda *a: True) if self._class else arg
        if self._class is not None and not issubclass(self._class, IterDataPipe):
            raise TypeError("Only `IterDataPipe` can be decorated with `non_deterministic`")
        if self._class is None and not callable(arg):
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._class is not None:
            self._refuse(self._class)
            return self._class(*args, **kwargs)
        (cls,) = args
        if not (isinstance(cls, type) and issubclass(cls, IterDataPipe)):
            raise TypeError(f"Only `IterDataPipe` can be decorated, but {cls} is found")

        @functools.wraps(cls)
        def make(*args: Any, **kwargs: Any) -> Any:
            answer = self._asked(*args, **kwargs)
            if not isinstance(answer, bool):
                raise TypeError(
                    f"The returned value of the function is required to be a boolean, but "
                    f"{type(answer)} is found"
                )
            if answer:
                self._refuse(cls)
            return cls(*args, **kwargs)

        return make

    @staticmethod
    def _refuse(cls: type) -> None:
        if _determinism[0]:
            raise TypeError(
                f"{cls.__name__} is non-deterministic, but you set 'guaranteed_datapipes_determinism'. "
                f"You can turn off "
                "determinism for this DataPipe if that is acceptable for your application"
            )


def _item(hint: Any) -> Any:
    """Returns the element type of a pipe's annotation."""
    arguments = typing.get_args(hint)
    return arguments[0] if arguments else Any


def _is_a(x: Any, hint: Any) -> bool:
    """Returns whether ``x`` has the annotated type, as far as its elements can be checked."""
    if hint is Any or isinstance(hint, (typing.TypeVar, str)):
        return True
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        return x is None
    if origin is None:
        return isinstance(x, hint) if isinstance(hint, type) else True
    if not isinstance(origin, type):  # unions and similar types
        return any(_is_a(x, h) for h in inside) if origin is typing.Union else True
    if origin.__name__ == "UnionType":
        return any(_is_a(x, h) for h in inside)
    if not isinstance(x, origin):
        return False
    if origin is tuple and inside and inside[-1] is not ...:
        return len(x) == len(inside) and all(map(_is_a, x, inside))
    if origin in (list, set, frozenset, tuple) and inside:
        return all(_is_a(e, inside[0]) for e in x)
    if origin is dict:
        return all(_is_a(k, inside[0]) and _is_a(v, inside[1]) for k, v in x.items())
    return True


def argument_validation(f: Callable) -> Callable:
    """Decorates a function whose annotations mark arguments as pipes; raises TypeError for other
    arguments.
    """
    signature, hints = inspect.signature(f), typing.get_type_hints(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            hint = hints.get(name)
            kind = typing.get_origin(hint) or hint
            if isinstance(kind, type) and issubclass(kind, IterDataPipe) and not isinstance(value, kind):
                raise TypeError(f"Expected argument '{name}' as a IterDataPipe, but found {type(value)}")
        return f(*args, **kwargs)

    return checked


_validating: list[bool] = [True]


class runtime_validation_disabled:
    """Within the ``with`` block, elements of pipes are not checked."""

    def __init__(self) -> None:
        self._before, _validating[0] = _validating[0], False

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _validating[0] = self._before


def runtime_validation(f: Callable) -> Callable:
    """Decorates the ``__iter__`` of a class of pipes; raises RuntimeError for an element that does not
    have the type T of its annotation ``Iterator[T]``.
    """
    if f.__name__ != "__iter__":
        raise TypeError(f"Can not decorate function {f.__name__} with 'runtime_validation'")
    hint = _item(typing.get_type_hints(f).get("return", Iterator[Any]))

    @functools.wraps(f)
    def checked(self: Any) -> Iterator[Any]:
        for element in f(self):
            if _validating[0] and not _is_a(element, hint):
                raise RuntimeError(
                    f"Expected an instance as subtype of {hint}, but found {element}({type(element)})"
                )
            yield element

    return checked
