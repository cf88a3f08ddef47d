"""What modules of functions have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType

from . import _C


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
    modules of its own, and names by the module that has them. ``cmake/write_lazy.py`` tells the same to
    tools that read, from what the package calls ``_SUBMODULES`` and ``_ELSEWHERE``.
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

    return getattribute, lambda: sorted({*module, *known, *home})


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
