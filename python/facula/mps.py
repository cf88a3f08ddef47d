"""Apple GPUs: there are none. Queries say so, and other functions raise errors."""

from __future__ import annotations

from typing import NoReturn

from ._no_gpu import device_count, empty_cache, is_available, manual_seed

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "seed", "synchronize"]


def seed() -> None:
    """Has no effect: there is no generator."""


def synchronize() -> NoReturn:
    raise RuntimeError("Facula has no MPS backend")
