"""Switches of PyTorch's backends. Those of GPUs are kept and change nothing; the CPU's libraries are
always there.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__path__: list[str] = []  # import facula.backends.cudnn as cudnn


class _Backend(ModuleType):
    """A backend's switches; ``available`` is what is_available says."""

    def __init__(self, name: str, available: bool, **switches: Any) -> None:
        super().__init__(f"facula.backends.{name}")
        sys.modules[self.__name__] = self
        self.__dict__.update(switches)
        self._available = available

    def is_available(self) -> bool:
        return self._available

    def is_built(self) -> bool:
        return self._available


cudnn = _Backend("cudnn", False, enabled=False, benchmark=False, deterministic=True, allow_tf32=False)
cuda = _Backend("cuda", False, matmul=_Backend("cuda.matmul", False, allow_tf32=False))
mps = _Backend("mps", False)
mkldnn = _Backend("mkldnn", True, enabled=True)
openmp = _Backend("openmp", False)
mkl = _Backend("mkl", False)
