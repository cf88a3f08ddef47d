"""Functions that programs call before they use a kind of GPU, for kinds that are absent."""

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
    """Has no effect: there is nothing to free."""


def manual_seed(seed: int) -> None:
    """Has no effect: there is no generator to seed."""


def manual_seed_all(seed: int) -> None:
    """Has no effect: there are no generators to seed."""
