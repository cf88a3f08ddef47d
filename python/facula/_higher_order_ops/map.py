"""Maps a function over slices of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils._pytree import tree_leaves, tree_map, tree_structure, tree_unflatten

__all__ = ["map"]


def stacked(trees: list[Any], dim: int = 0) -> Any:
    """Stacks trees of tensors to one tree, whose tensors have one more dimension."""
    columns = zip(*(tree_leaves(t) for t in trees))
    return tree_unflatten([_C.functions.stack(c, dim) for c in columns], tree_structure(trees[0]))


def slice_of(tree: Any, dim: int, k: int) -> Any:
    """Returns the ``k``-th slices of the tensors of a tree."""
    return tree_map(lambda x: x.select(dim, k), tree)


def map(f: Callable, xs: Any, *args: Any) -> Any:
    """Stacks ``f(x, *args)`` for each slice ``x`` of the first dimension of ``xs``, a tree of tensors.

    >>> from facula._higher_order_ops import map
    >>> map(lambda x, k: x * k, facula.tensor([[1., 2.], [3., 4.]]), facula.tensor(2.))
    tensor([[2., 4.],
            [6., 8.]])
    """
    leaves = tree_leaves(xs)
    if not leaves or not all(isinstance(x, _C.Tensor) and x.dim() and len(x) for x in leaves):
        raise RuntimeError(f"map: expected tensors with a first dimension that is not empty, got {xs}")
    if len({len(x) for x in leaves}) > 1:
        raise RuntimeError(
            f"Leading dimensions of mapped xs must be consistent. Got shapes {[x.shape for x in leaves]}."
        )
    return stacked([f(slice_of(xs, 0, k), *args) for k in range(len(leaves[0]))])
