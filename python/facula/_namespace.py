"""Helpers for modules of functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType

from . import _C

_own_names = vars(ModuleType)["__dict__"].__get__


class _Package(ModuleType):
    """A package that loads names at their first use. ``vars`` of it loads all of them, so that programs see
    every name and the dictionary does not grow while they iterate over it.
    """

    @property
    def __dict__(self) -> dict[str, object]:  # type: ignore[override]
        names = _own_names(self)
        if not getattr(names["__spec__"], "_initializing", False):
            for name in names["__dir__"]():
                if name not in names:
                    try:
                        getattr(self, name)
                    except ImportError:  # it needs a package that is not installed
                        continue
        return names

    def __dir__(self) -> list[str]:
        return _own_names(self)["__dir__"]()


def names_now(module: ModuleType) -> dict[str, object]:
    """The names of a module, without those that follow at their first use."""
    return _own_names(module)


def complete_vars(module: dict[str, object]) -> None:
    """Lets ``vars`` of a package, by its globals, have what its ``__dir__`` tells."""
    sys.modules[str(module["__name__"])].__class__ = _Package


def renamed(name: str, old: str, new: str) -> str | None:
    """Replaces the prefix ``old`` of a dotted name; None if it does not have that prefix."""
    return new + name[len(old) :] if name == old or name.startswith(old + ".") else None


def fill(module: dict[str, object], namespace: ModuleType) -> Callable[[str], object]:
    """Adds the public operators of `namespace` to a module, which is passed as its globals.

    Returns its ``__getattr__``, which finds operators that are defined after the import.
    """

    def public(name: str) -> bool:
        return not name.startswith("_") and name in vars(namespace)

    def getattribute(name: str) -> object:
        if public(name):
            return vars(namespace)[name]
        raise AttributeError(f"module '{module['__name__']}' has no attribute '{name}'")

    module.update({name: vars(namespace)[name] for name in filter(public, vars(namespace))})
    return getattribute


def later(
    module: dict[str, object], submodules: Iterable[str], elsewhere: Mapping[str, str] = {}
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns ``__getattr__`` and ``__dir__`` of a package, from its globals, for lazy imports:
    submodules, and names by the module that defines them; ``vars`` imports all of them.
    ``cmake/write_lazy.py`` generates the same imports for type checkers, from ``_SUBMODULES`` and
    ``_ELSEWHERE`` of the package.
    """
    modules = frozenset(submodules)
    home = {name: owner for owner, names in elsewhere.items() for name in names.split()}

    def getattribute(name: str) -> object:
        from importlib import import_module

        package = str(module["__name__"])
        if name in modules:
            return import_module("." + name, package)
        if name in home:
            value: object = getattr(import_module("." + home[name], package), name)
            module[name] = value
            return value
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    complete_vars(module)
    return getattribute, lambda: sorted({*module, *modules, *home})


def assignable(module: dict[str, object], names: str) -> None:
    """Lets programs put attributes on builtins, as on PyTorch's functions of these names, which are written
    in Python. The module is given by its globals.
    """
    for name in names.split():
        module[name] = _C.Overridable(module[name], False)


def of_tensors(f: FunctionType) -> bool:
    """Returns whether a function takes or returns tensors, by its annotations."""
    return any("Tensor" in str(said) for said in f.__annotations__.values())


def overridable(module: dict[str, object], which: Callable[[FunctionType], bool] = lambda f: True) -> None:
    """Lets arguments with a ``__torch_function__`` method override the public functions of a module.

    The module is passed as its globals; only functions for which ``which`` is true are affected.
    """
    for name, f in list(module.items()):
        if isinstance(f, FunctionType) and not name.startswith("_") and which(f):
            module[name] = _C.Overridable(f)
