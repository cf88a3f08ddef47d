"""No accelerator: what programs ask before they use one is answered."""

from __future__ import annotations

from typing import Any

__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    return False


def current_accelerator(check_available: bool = False) -> Any:
    """None: there is none."""
    return None


def device_count() -> int:
    return 0


def synchronize(device: Any = None, /) -> None:
    raise RuntimeError("Cannot access accelerator device when none is available.")
