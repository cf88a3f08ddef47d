"""What programs ask of a kind of GPU before they use one, where there is none."""

from __future__ import annotations


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
