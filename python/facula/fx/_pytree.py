"""Arguments that are trees, flattened as a given structure is."""

from __future__ import annotations

from typing import Any

from ..utils._pytree import TreeSpec

__all__ = ["tree_flatten_spec"]


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The parts of a tree where ``spec`` has leaves."""
    return spec.flatten_up_to(pytree)
