"""No Intel GPU: what programs ask before they use one is answered, the rest raises."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["current_device", "device_count", "empty_cache", "is_available", "is_bf16_supported",
           "is_initialized", "manual_seed", "manual_seed_all", "synchronize"]  # fmt: skip


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def device_count() -> int:
    return 0


def empty_cache() -> None:
    """Nothing to free."""


def manual_seed(seed: int) -> None:
    """No generator to seed."""


def manual_seed_all(seed: int) -> None:
    """No generators to seed."""


def current_device() -> NoReturn:
    raise AssertionError("Facula not compiled with XPU enabled")


def synchronize(device: Any = None) -> NoReturn:
    current_device()
