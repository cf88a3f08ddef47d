"""Helpers for modules of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType

from . import _C


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
    submodules, and names by the module that defines them. ``cmake/write_lazy.py`` generates the same
    imports for type checkers, from ``_SUBMODULES`` and ``_ELSEWHERE`` of the package.
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

    return getattribute, lambda: sorted({*module, *modules, *home})


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
