"""PyTorch's older names of automatic mixed precision on CUDA, where it is off: there is no CUDA."""

from __future__ import annotations

from typing import Any

from ..amp import GradScaler as _GradScaler
from ..amp import _deprecated, custom_bwd, custom_fwd
from ..amp import autocast as _autocast

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
__path__: list[str] = []  # for the modules that PyTorch divides it into


def amp_definitely_not_available() -> bool:
    """True: there is no CUDA."""
    return True


class autocast(_autocast):
    """``facula.autocast("cuda", ...)``: warns that it changes nothing."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        _deprecated("cuda.amp.autocast", "amp.autocast('cuda', args...)")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """``facula.amp.GradScaler("cuda", ...)``: warns that it changes nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _deprecated("cuda.amp.GradScaler", "amp.GradScaler('cuda', args...)")
        super().__init__("cuda", *args, **kwargs)
