"""No Apple GPU: what programs ask before they use one is answered, the rest raises."""

from __future__ import annotations

from typing import NoReturn

from ._no_gpu import device_count, empty_cache, is_available, manual_seed

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "seed", "synchronize"]


def seed() -> None:
    """No generator to seed."""


def synchronize() -> NoReturn:
    raise RuntimeError("Facula has no MPS backend")
