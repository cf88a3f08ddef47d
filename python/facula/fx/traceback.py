"""Metadata of nodes about the program that they come from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["has_preserved_node_meta", "preserve_node_meta"]

_preserved = 0


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Sets ``has_preserved_node_meta()`` within the ``with`` block; nothing else depends on it."""
    global _preserved
    _preserved += enable
    try:
        yield
    finally:
        _preserved -= enable


def has_preserved_node_meta() -> bool:
    return _preserved > 0
