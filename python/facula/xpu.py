"""Intel GPUs: there are none. Queries say so, and other functions raise errors."""

from __future__ import annotations

from typing import Any, NoReturn

from ._no_gpu import (
    device_count,
    empty_cache,
    is_available,
    is_bf16_supported,
    is_initialized,
    manual_seed,
    manual_seed_all,
)

__all__ = ["current_device", "device_count", "empty_cache", "is_available", "is_bf16_supported",
           "is_initialized", "manual_seed", "manual_seed_all", "synchronize"]  # fmt: skip


def current_device() -> NoReturn:
    raise AssertionError("Facula not compiled with XPU enabled")


def synchronize(device: Any = None) -> NoReturn:
    current_device()
