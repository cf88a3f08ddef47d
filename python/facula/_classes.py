"""``facula.classes``: C++ classes that libraries registered (``class_`` of facula/extension.h), by
namespace and name.

>>> facula.classes.mine.Stack  # doctest: +SKIP
<class 'facula.classes.mine.Stack'>
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from . import _C
from ._ops import ops

__all__ = ["ScriptObject", "classes"]

ScriptObject = _C.ScriptObject


def _parameter(fact: tuple) -> inspect.Parameter:
    name, annotation, has_default, default = fact
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(
        name, kind, default=default if has_default else inspect.Parameter.empty, annotation=annotation
    )


def _describe(f: Any, fact: tuple, owner: str, bound: bool) -> Any:
    """Gives a function the name, docstring and signature of a method."""
    name, doc, schema, parameters, result = fact
    shown = [_parameter(p) for p in parameters]
    if bound:
        shown[0] = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    f.__name__, f.__qualname__, f.__doc__ = name, f"{owner}.{name}", doc or schema
    f.__signature__ = inspect.Signature(shown, return_annotation=None if result == "()" else result)
    return f


def _method(fact: tuple, owner: str) -> Any:
    name = fact[0]

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if _C.is_tracing():
            return _recorded(self, fact, args, kwargs)
        return self._call(name, args, kwargs)

    return _describe(method, fact, owner, True)


def _recorded(self: Any, fact: tuple, args: tuple, kwargs: dict) -> Any:
    from ._library.fake_class_registry import recorded
    from .program import fakes_of_trace

    return recorded(self, fact, args, kwargs, fakes_of_trace(f"{type(self).__qualname__}.{fact[0]}"))


def _static(fact: tuple, namespace: str, owner: str) -> Any:
    name = fact[0]

    def function(*args: Any, **kwargs: Any) -> Any:
        return _C.class_static(namespace, owner, name, args, kwargs)

    return staticmethod(_describe(function, fact, owner, False))


def _property(fact: tuple) -> property:
    name, doc, result, settable = fact

    def get(self: Any) -> Any:
        return self._get(name)

    def set(self: Any, value: Any) -> None:
        self._set(name, value)

    return property(get, set if settable else None, None, doc or result)


class _Base(ScriptObject):
    """Base of all C++ classes in Python. Objects are equal if they are the same object in C++."""

    __slots__ = ()
    _namespace = _class_name = ""

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} object at {self._identity():#x}>"

    def __getstate__(self) -> Any:
        return self._state()

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _restore, (self._namespace, self._class_name, self.__getstate__())

    def _type(self) -> Any:
        return type(self)


def _restore(namespace: str, name: str, state: Any) -> Any:
    """Restores an object from a pickle; the library of its class has to be loaded."""
    return _C.class_restore(namespace, name, state)


def _make(namespace: str, name: str) -> type:
    facts = _C.class_facts(namespace, name)
    members: dict[str, Any] = {
        "__slots__": (),
        "__module__": f"{__name__.partition('.')[0]}.classes.{namespace}",
        "__doc__": facts["doc"] or None,
        "_namespace": namespace,
        "_class_name": name,
    }
    members |= {fact[0]: _property(fact) for fact in facts["properties"]}
    members |= {fact[0]: _method(fact, name) for fact in facts["methods"]}
    members |= {fact[0]: _static(fact, namespace, name) for fact in facts["static"]}
    if "__eq__" in members:
        members.setdefault("__hash__", None)
    if facts["init"]:
        shown = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
        shown += [_parameter(p) for p in facts["init"][3]]
        members["__signature__"] = inspect.Signature(shown[1:])
    return type(name, (_Base,), members)


class _ClassNamespace(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(f"{__name__.partition('.')[0]}.classes.{name}")
        self._ns = name

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        created = _make(self._ns, name)
        setattr(self, name, created)
        return created

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *(name for ns, name in _C.class_names() if ns == self._ns)]


class _Classes(ModuleType):
    """C++ classes by namespace, registered by libraries."""

    def __init__(self) -> None:
        super().__init__(f"{__name__.partition('.')[0]}.classes")

    def __getattr__(self, name: str) -> _ClassNamespace:
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = _ClassNamespace(name)
        setattr(self, name, namespace)
        return namespace

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *{ns for ns, _ in _C.class_names()}]

    @property
    def loaded_libraries(self) -> set[str]:
        return ops.loaded_libraries

    def load_library(self, path: str) -> None:
        """The same as ``facula.ops.load_library``."""
        ops.load_library(path)


classes = _Classes()
_C.set_class_factory(lambda namespace, name: getattr(getattr(classes, namespace), name))
