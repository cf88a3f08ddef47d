"""Where objects that are being packaged come from: names of modules and of what is in them."""

from __future__ import annotations

import importlib
import itertools
import pickle
import re
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

_numbers = itertools.count()
_MANGLED = re.compile(r"<torch_package_\d+>(\.|$)")


def new_mangle() -> str:
    """A name that the modules of one package stand below."""
    return f"<torch_package_{next(_numbers)}>"


def is_mangled(name: str) -> bool:
    return bool(_MANGLED.match(name))


def demangled(name: str) -> str:
    return _MANGLED.sub("", name, count=1)


def is_from_package(obj: Any) -> bool:
    """Was the object, or its class, made by the code of a package?"""
    if isinstance(obj, ModuleType):
        return is_mangled(obj.__name__)
    return is_mangled(getattr(obj, "__module__", None) or type(obj).__module__)


class ObjNotFoundError(Exception):
    """An object is not where its name says."""


class ObjMismatchError(Exception):
    """Another object is where its name says."""


class Importer(ABC):
    """Gives modules by name, and names of objects."""

    @abstractmethod
    def import_module(self, module_name: str) -> ModuleType:
        """The module, imported if need be."""

    def whichmodule(self, obj: Any, name: str) -> str:
        return pickle.whichmodule(obj, name)

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """(module, name in it) by which this importer finds the object; ObjNotFoundError or
        ObjMismatchError if it does not.
        """
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        given = self.whichmodule(obj, name)
        module = demangled(given)
        try:
            found: Any = self.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, KeyError, AttributeError):
            where = " from a package" if is_mangled(given) else ""
            raise ObjNotFoundError(
                f"{obj} was not found as {module}.{name}{where}\n"
                "  hint: PackageExporter(f, importer=(package_importer, sys_importer)) looks there as well"
            ) from None
        if found is not obj:
            raise ObjMismatchError(f"{module}.{name} is not the object {obj}, but another one of that name")
        return module, name


class _SysImporter(Importer):
    """The modules of this process."""

    def import_module(self, module_name: str) -> ModuleType:
        return importlib.import_module(module_name)


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """The first of several importers that knows a module."""

    def __init__(self, *args: Importer) -> None:
        self._importers = list(args)

    def import_module(self, module_name: str) -> ModuleType:
        last: Exception = ModuleNotFoundError(module_name)
        for importer in self._importers:
            try:
                return importer.import_module(module_name)
            except ModuleNotFoundError as error:
                last = error
        raise last

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        last: Exception = ObjNotFoundError(str(obj))
        for importer in self._importers:
            try:
                return importer.get_name(obj, name)
            except (ObjNotFoundError, ObjMismatchError) as error:
                last = error
        raise last
