"""Helpers of functions that define the export of operators: such functions are never called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])


def parse_args(*arg_descriptors: str) -> Callable[[T], T]:
    """Returns the function itself: see ``onnx.export``."""
    return lambda f: f
