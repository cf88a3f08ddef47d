"""Maps a function over lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["foreach_map"]


def foreach_map(op: Callable, *operands: Any, **kwargs: Any) -> list:
    """Applies ``op`` to the first items of all lists, to the second ones, and so on; other arguments are
    repeated.

    >>> from facula._higher_order_ops import foreach_map
    >>> foreach_map(facula.mul, [facula.ones(1), facula.ones(2)], 3)
    [tensor([3.]), tensor([3., 3.])]
    """
    sizes = {len(x) for x in operands if isinstance(x, (list, tuple))}
    if len(sizes) != 1:
        raise ValueError(f"foreach_map: expected lists of the same length, got {sorted(sizes)}")
    rows = zip(*(x if isinstance(x, (list, tuple)) else [x] * max(sizes) for x in operands))
    return [op(*row, **kwargs) for row in rows]
