"""PyTorch's mark of functions whose names and arguments do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def compatibility(is_backward_compatible: bool) -> Callable[[T], T]:
    """A decorator that returns what it decorates: nothing here reads the mark."""
    return lambda marked: marked
