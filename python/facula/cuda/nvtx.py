"""Marks in traces of NVIDIA's tools: unavailable without CUDA, as in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _absent(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")


def range_push(msg: str) -> int:
    """Begins a range on this thread."""
    return _absent()


def range_pop() -> int:
    """Ends the innermost range of this thread."""
    return _absent()


def range_start(msg: str) -> int:
    """Begins a range that another thread may end."""
    return _absent()


def range_end(range_id: int) -> None:
    """Ends a range."""
    _absent()


def mark(msg: str) -> None:
    """Marks a point in time."""
    _absent()


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Surrounds the block by a range."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
