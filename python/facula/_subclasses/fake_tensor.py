"""Questions about fake tensors: no tensor is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def is_fake(x: Any) -> bool:
    """False: tensors of the device ``meta``, which have no elements, are not fake tensors."""
    return False


def maybe_get_fake_mode(t: Any) -> None:
    """None: no mode makes fake tensors."""


@contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """No mode makes fake tensors, so there is none to switch off."""
    yield None
