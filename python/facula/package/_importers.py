"""The origins of objects that are being packaged: names of modules and of their contents."""

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
    """Returns a name under which the modules of one package are placed."""
    return f"<torch_package_{next(_numbers)}>"


def is_mangled(name: str) -> bool:
    return bool(_MANGLED.match(name))


def demangled(name: str) -> str:
    return _MANGLED.sub("", name, count=1)


def is_from_package(obj: Any) -> bool:
    """Returns whether the object, or its class, was created by the code of a package."""
    if isinstance(obj, ModuleType):
        return is_mangled(obj.__name__)
    return is_mangled(getattr(obj, "__module__", None) or type(obj).__module__)


class ObjNotFoundError(Exception):
    """Raised if an object does not exist under its name."""


class ObjMismatchError(Exception):
    """Raised if another object exists under an object's name."""


class Importer(ABC):
    """Imports modules by name, and returns names of objects."""

    @abstractmethod
    def import_module(self, module_name: str) -> ModuleType:
        """Returns the module, imported if necessary."""

    def whichmodule(self, obj: Any, name: str) -> str:
        return pickle.whichmodule(obj, name)

    def get_name(self, obj: Any, name: str | None = None) -> tuple[str, str]:
        """Returns (module, name in it) under which this importer finds the object; raises
        ObjNotFoundError or ObjMismatchError otherwise.
        """
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        module_name = self.whichmodule(obj, name)
        module = demangled(module_name)
        try:
            member: Any = self.import_module(module)
            for part in name.split("."):
                member = getattr(member, part)
        except (ImportError, KeyError, AttributeError):
            where = " from a package" if is_mangled(module_name) else ""
            raise ObjNotFoundError(
                f"{obj} was not found as {module}.{name}{where}\n"
                "  hint: PackageExporter(f, importer=(package_importer, sys_importer)) looks there as well"
            ) from None
        if member is not obj:
            raise ObjMismatchError(f"{module}.{name} is not the object {obj}, but another one of that name")
        return module, name


class _SysImporter(Importer):
    """The modules of this process."""

    def import_module(self, module_name: str) -> ModuleType:
        return importlib.import_module(module_name)


sys_importer = _SysImporter()


class OrderedImporter(Importer):
    """The first of several importers that has a module."""

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
