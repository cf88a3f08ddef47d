"""The classes of results with named fields: ``facula.return_types.max`` is that of ``facula.max(x, 0)``."""

from __future__ import annotations

from typing import Any

from . import _C


def _find(name: str) -> Any:
    if name == "histogramdd":
        from ._composed import _Histogramdd

        return _Histogramdd
    return _C.result_class(name.removesuffix("_out"))


def pytree_register_structseq(cls: Any) -> None:
    """Checks the class; trees of tensors support results with named fields without registration."""
    from .utils._pytree import is_structseq_class

    if not is_structseq_class(cls):
        raise TypeError(f"pytree_register_structseq: {cls!r} is no class of results that have names")


TYPE_CHECKING = False
if not TYPE_CHECKING:  # created on demand

    def __getattr__(name: str) -> Any:
        if name == "all_return_types":
            return [result_class for n in __dir__() if n[0] != "_" and (result_class := _find(n)) is not None]
        result_class = None if name.startswith("_") else _find(name)
        if result_class is None:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        globals()[name] = result_class
        return result_class


def __dir__() -> list[str]:
    return sorted({o["name"] for o in _C.operators() if _find(o["name"]) is not None})
