"""The classes of results with names: ``facula.return_types.max`` is that of ``facula.max(x, 0)``."""

from __future__ import annotations

from typing import Any

from . import _C


def _find(name: str) -> Any:
    return _C.result_class(name.removesuffix("_out"))


TYPE_CHECKING = False
if not TYPE_CHECKING:  # found when they are asked for

    def __getattr__(name: str) -> Any:
        if name == "all_return_types":
            return [found for n in __dir__() if n[0] != "_" and (found := _find(n)) is not None]
        found = None if name.startswith("_") else _find(name)
        if found is None:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({o["name"] for o in _C.operators() if _find(o["name"]) is not None})
