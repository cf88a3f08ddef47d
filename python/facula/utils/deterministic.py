"""``fill_uninitialized_memory``: whether memory without a value is filled when deterministic algorithms
are on (default True).
"""

from __future__ import annotations

import sys
import types

from .._determinism import _apply, _state


class _Module(types.ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether memory without a value is filled with NaN or the largest integer."""
        return _state["fill"]

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        _state["fill"] = bool(mode)
        _apply()


sys.modules[__name__].__class__ = _Module
