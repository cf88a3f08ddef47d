"""No accelerator: what programs ask before they use one is answered."""

from __future__ import annotations

from typing import Any

from ._no_gpu import device_count, is_available

__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]


def current_accelerator(check_available: bool = False) -> Any:
    """None: there is none."""
    return None


def synchronize(device: Any = None, /) -> None:
    raise RuntimeError("Cannot access accelerator device when none is available.")
