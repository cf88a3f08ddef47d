"""Flattening of trees to a structure that is prescribed."""

from __future__ import annotations

from typing import Any

from ..utils._pytree import TreeSpec

__all__ = ["tree_flatten_spec"]


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """Returns the subtrees at the positions of the leaves of ``spec``."""
    return spec.flatten_up_to(pytree)
