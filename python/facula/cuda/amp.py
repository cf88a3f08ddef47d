"""PyTorch's former names of automatic mixed precision on CUDA, which is off without CUDA."""

from __future__ import annotations

from typing import Any

from ..amp import GradScaler as _GradScaler
from ..amp import _deprecated, custom_bwd, custom_fwd
from ..amp import autocast as _autocast

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
__path__: list[str] = []  # for the submodules into which PyTorch divides it


def amp_definitely_not_available() -> bool:
    """True: there is no CUDA."""
    return True


class autocast(_autocast):
    """``facula.autocast("cuda", ...)``: warns that it has no effect."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        _deprecated("cuda.amp.autocast", "amp.autocast('cuda', args...)")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """``facula.amp.GradScaler("cuda", ...)``: warns that it has no effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _deprecated("cuda.amp.GradScaler", "amp.GradScaler('cuda', args...)")
        super().__init__("cuda", *args, **kwargs)
