"""What modules of functions have in common."""

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
    """A dotted name with another beginning; None if it does not begin with ``old``."""
    return new + name[len(old) :] if name == old or name.startswith(old + ".") else None


def fill(module: dict[str, object], namespace: ModuleType) -> Callable[[str], object]:
    """Gives a module, by its globals, the public operators of `namespace`.

    Returns its ``__getattr__``, which finds those that are defined after the import.
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
    """``__getattr__`` and ``__dir__`` of a package, by its globals, for what follows at its first use:
    modules of its own, and names by the module that has them; ``vars`` loads them all.
    ``cmake/write_lazy.py`` tells the same to tools that read, from what the package calls ``_SUBMODULES``
    and ``_ELSEWHERE``.
    """
    known = frozenset(submodules)
    home = {name: owner for owner, names in elsewhere.items() for name in names.split()}

    def getattribute(name: str) -> object:
        from importlib import import_module

        package = str(module["__name__"])
        if name in known:
            return import_module("." + name, package)
        if name in home:
            value: object = getattr(import_module("." + home[name], package), name)
            module[name] = value
            return value
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    complete_vars(module)
    return getattribute, lambda: sorted({*module, *known, *home})


def assignable(module: dict[str, object], names: str) -> None:
    """Lets programs put attributes on builtins, as on PyTorch's functions of these names, which are written
    in Python. The module is given by its globals.
    """
    for name in names.split():
        module[name] = _C.Overridable(module[name], False)


def of_tensors(f: FunctionType) -> bool:
    """Does a function take or give tensors, as its annotations say?"""
    return any("Tensor" in str(said) for said in f.__annotations__.values())


def overridable(module: dict[str, object], which: Callable[[FunctionType], bool] = lambda f: True) -> None:
    """Lets arguments with a ``__torch_function__`` of their own take the public functions of a module.

    The module is given by its globals; of its functions those for which ``which`` holds.
    """
    for name, f in list(module.items()):
        if isinstance(f, FunctionType) and not name.startswith("_") and which(f):
            module[name] = _C.Overridable(f)
