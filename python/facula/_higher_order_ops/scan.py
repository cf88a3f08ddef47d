"""Scans that carry a state along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils._pytree import tree_leaves
from .map import slice_of, stacked

__all__ = ["scan"]


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Runs ``state, output = combine_fn(state, x)`` for each slice ``x`` of ``xs`` along ``dim``,
    starting with ``init``. Returns the last state and the stacked outputs.

    >>> from facula._higher_order_ops import scan
    >>> scan(lambda s, x: (s + x, s * x), facula.tensor(1.), facula.tensor([2., 3.]))
    (tensor(6.), tensor([2., 9.]))
    """
    leaves = tree_leaves(xs)
    if not leaves or not all(isinstance(x, _C.Tensor) for x in leaves):
        raise RuntimeError(f"scan: expected xs to be a tree of tensors, got {xs}")
    sizes = {x.size(dim) for x in leaves}
    if len(sizes) > 1 or 0 in sizes:
        raise RuntimeError(
            f"scan: all xs must have the same size, which is not 0, along dim={dim}, got {sorted(sizes)}"
        )
    order = list(range(sizes.pop()))
    state, outputs = init, []
    for k in reversed(order) if reverse else order:
        state, output = combine_fn(state, slice_of(xs, dim, k))
        outputs.append(output)
    return state, stacked(outputs[::-1] if reverse else outputs, 0)
