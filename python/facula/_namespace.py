"""What makes a module of a namespace of operators."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType


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
