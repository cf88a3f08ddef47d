"""No Apple GPU: what programs ask before they use one is answered, the rest raises."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "seed", "synchronize"]


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def empty_cache() -> None:
    """Nothing to free."""


def manual_seed(seed: int) -> None:
    """No generator to seed."""


def seed() -> None:
    """No generator to seed."""


def synchronize() -> NoReturn:
    raise RuntimeError("Facula has no MPS backend")
