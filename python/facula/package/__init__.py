"""Archives of objects together with the source of the modules that they need, in PyTorch's format::

    with facula.package.PackageExporter("model.pt") as e:
        e.intern("mylib.**")                      # includes its source
        e.extern("numpy.**")                      # imported where the package is read
        e.save_pickle("model", "model.pkl", net)
    net = facula.package.PackageImporter("model.pt").load_pickle("model", "model.pkl")

Modules of the library and of Python are external by default. Reading a package runs its code.
"""

import sys
from typing import Any

from ._files import Directory, GlobGroup
from ._importers import (
    Importer,
    ObjMismatchError,
    ObjNotFoundError,
    OrderedImporter,
    is_from_package,
    sys_importer,
)
from .package_exporter import EmptyMatchError, PackageExporter, PackagingError
from .package_importer import PackageImporter

__all__ = [
    "Directory",
    "EmptyMatchError",
    "GlobGroup",
    "Importer",
    "ObjMismatchError",
    "ObjNotFoundError",
    "OrderedImporter",
    "PackageExporter",
    "PackageImporter",
    "PackagingError",
    "is_from_package",
    "sys_importer",
]


class _Package(type(sys)):
    """This module, which is also a function: ``facula.package(program, path)`` writes a program for machines
    without a compiler (:mod:`facula.export._package`).
    """

    def __call__(self, program: Any, path: Any, **options: Any) -> None:
        from ..export._package import package

        package(program, path, **options)


sys.modules[__name__].__class__ = _Package
