"""Export of modules as PyTorch's graphs, which is not implemented yet: the functions exist and raise
errors.

:func:`facula.program.trace` has other options for sizes that may change.
"""

from __future__ import annotations

from typing import Any, NoReturn

from . import _C
from .utils._pytree import register_dataclass as register_dataclass

__path__: list[str] = []  # for the submodules into which PyTorch divides it

__all__ = ["Dim", "ExportedProgram", "export", "load", "register_dataclass", "save"]


class Dim:
    """The name of a size that may change, within bounds, for ``dynamic_shapes``.

    >>> batch = Dim("batch", min=2, max=8)
    >>> batch.__name__, batch.max
    ('batch', 8)
    """

    AUTO, STATIC, DYNAMIC = "Dim.AUTO", "Dim.STATIC", "Dim.DYNAMIC"

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low, high = 0 if min is None else min, 2**63 - 1 if max is None else max
        if high <= low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__, self.min, self.max = name, low, high

    def __repr__(self) -> str:
        return f"Dim({self.__name__!r}, min={self.min}, max={self.max})"


class ExportedProgram:
    """For ``isinstance`` checks of libraries: no object is an instance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("ExportedProgram")


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"export.{name}: modules are not exported as PyTorch's graphs; "
        f"{_C.package_name()}.program.trace keeps one as a "
        "program of ours, and a state_dict goes both ways"
    )


def export(mod: Any, args: tuple[Any, ...] = (), kwargs: Any = None, **options: Any) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse("export")


def save(ep: Any, f: Any, **options: Any) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse("save")


def load(f: Any, **options: Any) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse("load")


export_for_training = export
