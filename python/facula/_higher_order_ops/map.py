"""Maps a function over slices of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils._pytree import tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten
from ._regions import is_recorded, record

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
    if is_recorded((xs, args)):
        return _recorded(f, xs, args)
    leaves = tree_leaves(xs)
    if not leaves or not all(isinstance(x, _C.Tensor) and x.dim() and x.size(0) for x in leaves):
        raise RuntimeError(f"map: expected tensors with a first dimension that is not empty, got {xs}")
    if len({x.size(0) for x in leaves}) > 1:
        raise RuntimeError(
            f"Leading dimensions of mapped xs must be consistent. Got shapes {[x.shape for x in leaves]}."
        )
    return stacked([f(slice_of(xs, 0, k), *args) for k in range(len(leaves[0]))])


def _recorded(f: Callable, xs: Any, args: tuple) -> Any:
    leaves, xs_spec = tree_flatten(xs)
    others, args_spec = tree_flatten(args)
    count = len(leaves)
    specs: list[Any] = []

    def one(*flat: _C.Tensor) -> list[_C.Tensor]:
        y = f(tree_unflatten(list(flat[:count]), xs_spec), *tree_unflatten(list(flat[count:]), args_spec))
        results, spec = tree_flatten(y)
        specs.append(spec)
        return results

    example = [*(x.select(0, 0) for x in leaves), *others]
    return tree_unflatten(record("map_impl", [one], [example], [*leaves, *others], count), specs[0])
