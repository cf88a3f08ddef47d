"""Scans that carry a state along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from ._regions import is_recorded, record
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
    if not reverse and is_recorded((init, xs)):
        return _recorded(combine_fn, init, xs, dim)
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


def _recorded(combine_fn: Callable, init: Any, xs: Any, dim: int) -> tuple[Any, Any]:
    state, state_spec = tree_flatten(init)
    leaves, xs_spec = tree_flatten(xs)
    leaves = [x.movedim(dim, 0) for x in leaves]
    count = len(state)
    specs: list[Any] = []

    def step(*flat: _C.Tensor) -> list[_C.Tensor]:
        s, y = combine_fn(
            tree_unflatten(list(flat[:count]), state_spec), tree_unflatten(list(flat[count:]), xs_spec)
        )
        outputs, spec = tree_flatten(y)
        specs.append(spec)
        return [*tree_leaves(s), *outputs]

    example = [*state, *(x.select(0, 0) for x in leaves)]
    results = record("scan", [step], [example], [*state, *leaves], count)
    return tree_unflatten(results[:count], state_spec), tree_unflatten(results[count:], specs[0])
