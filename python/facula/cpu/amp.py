"""``torch.cpu.amp``: autocast without a device argument."""

from __future__ import annotations

from typing import Any

from .. import _C, amp


class autocast(amp.autocast):
    """``facula.autocast("cpu", ...)``."""

    def __init__(self, enabled: bool = True, dtype: Any = _C.bfloat16, cache_enabled: bool = True) -> None:
        amp._deprecated("cpu.amp.autocast", "amp.autocast('cpu', args...)")
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


__all__ = ["autocast"]
