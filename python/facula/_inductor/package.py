"""Ahead-of-time packages under the names of AOTInductor."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from .. import _C
from ..export import ExportedProgram, export
from ..export._package import package
from ..program import Program, load

__all__ = ["AOTICompiledModel", "aot_compile", "aoti_compile_and_package", "aoti_load_package"]


def aoti_compile_and_package(
    exported_program: ExportedProgram,
    *,
    package_path: str | os.PathLike | None = None,
    inductor_configs: dict[str, Any] | None = None,
) -> str:
    """Writes the package of an exported program (:func:`facula.package`) and returns its path, by default
    one in a new folder. C (``facula_load``), NumPy (:func:`facula.load_package`) and
    :func:`aoti_load_package` load it. ``inductor_configs`` are settings of another compiler and have no
    effect.
    """
    if not isinstance(exported_program, ExportedProgram):
        raise TypeError(f"expected an ExportedProgram, got {type(exported_program).__name__}")
    if package_path is None:
        package_path = os.path.join(tempfile.mkdtemp(), "model.pt2")
    package(exported_program, package_path)
    return os.fspath(package_path)


def aot_compile(
    gm: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    options: dict[str, Any] | None = None,
) -> str:
    """Exports a module, writes its package and returns the path."""
    return aoti_compile_and_package(export(gm, args, kwargs), inductor_configs=options)


class AOTICompiledModel:
    """A package that is loaded; calls compute no gradients."""

    def __init__(self, path: str | os.PathLike) -> None:
        _C.add_kernels(os.fspath(path))
        self.program: Program = load(path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _C.GradMode(False):
            return self.program(*args, **kwargs)


def aoti_load_package(
    path: str | os.PathLike, model_name: str = "model", run_single_threaded: bool = False, **options: Any
) -> AOTICompiledModel:
    """Loads a package. It contains machine code, which is run: load only packages that you trust."""
    if model_name != "model":
        raise NotImplementedError(f"aoti_load_package: a package holds one model, not also {model_name!r}")
    return AOTICompiledModel(path)
