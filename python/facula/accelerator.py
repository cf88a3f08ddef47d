"""Accelerators: there is none, and the queries of programs say so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ._no_gpu import device_count, is_available

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "device_index",
    "empty_cache",
    "get_device_capability",
    "is_available",
    "set_device_index",
    "synchronize",
]


def current_accelerator(check_available: bool = False) -> Any:
    """Returns None: there is none."""
    return None


def _none_available() -> NoReturn:
    raise RuntimeError("Cannot access accelerator device when none is available.")


@contextmanager
def device_index(device: int | None, /) -> Iterator[None]:
    """Makes this accelerator the current one within the block; None has no effect."""
    if device is not None:
        _none_available()
    yield


def current_device_index() -> int:
    _none_available()


def set_device_index(device: Any, /) -> None:
    _none_available()


def empty_cache() -> None:
    """Has no effect: no memory of an accelerator is cached."""


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    _none_available()


def synchronize(device: Any = None, /) -> None:
    _none_available()
