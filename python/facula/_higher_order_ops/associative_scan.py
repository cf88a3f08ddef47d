"""Inclusive scans with an associative function along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils._pytree import tree_leaves
from .map import slice_of, stacked

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """Returns, for each position along ``dim``, ``combine_fn`` of all values up to it.

    >>> from facula._higher_order_ops import associative_scan
    >>> associative_scan(lambda a, b: a * b, facula.tensor([1., 2., 3.]), 0, combine_mode="generic")
    tensor([1., 2., 6.])
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves = tree_leaves(xs)
    if not leaves or not all(isinstance(x, _C.Tensor) for x in leaves):
        raise ValueError(f"associative_scan: expected xs to be a tree of tensors, got {xs}")
    sizes = {x.size(dim) for x in leaves}
    if len(sizes) > 1 or 0 in sizes:
        raise ValueError(f"associative_scan: all xs must have the same size, which is not 0, along dim={dim}")
    order = list(range(sizes.pop()))
    slices = [slice_of(xs, dim, k) for k in (reversed(order) if reverse else order)]
    results = slices[:1]
    for x in slices[1:]:
        results.append(combine_fn(results[-1], x))
    return stacked(results[::-1] if reverse else results, dim)
