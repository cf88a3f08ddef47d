"""Arguments that are trees, flattened as a given tree is."""

from __future__ import annotations

from typing import Any

from ..utils._pytree import _children

__all__ = ["tree_flatten_spec"]


def tree_flatten_spec(pytree: Any, spec: Any) -> list[Any]:
    """The parts of a tree where ``spec``, a tree that may be less deep, has leaves."""
    parts = _children(spec)
    if parts is None:
        return [pytree]
    found = _children(pytree)
    if found is None or len(found[0]) != len(parts[0]):
        raise ValueError(f"expected a tree like {spec}, got {pytree}")
    if isinstance(spec, dict):  # by the keys: the order of a caller's dict is its own
        if set(spec) != set(pytree):
            raise ValueError(f"expected the keys {list(spec)}, got {list(pytree)}")
        return [leaf for key in spec for leaf in tree_flatten_spec(pytree[key], spec[key])]
    return [leaf for item, part in zip(found[0], parts[0]) for leaf in tree_flatten_spec(item, part)]
