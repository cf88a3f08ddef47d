"""A choice between two functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils._pytree import tree_leaves

__all__ = ["cond"]


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: tuple | list = ()) -> Any:
    """Returns ``true_fn(*operands)`` if ``pred``, a bool or a tensor of one element, is true, else
    ``false_fn(*operands)``.

    >>> facula.cond(facula.tensor(3) > 2, lambda x: x + 1, lambda x: x - 1, (facula.zeros(2),))
    tensor([1., 1.])
    """
    if (
        not isinstance(pred, (bool, int, float, _C.Tensor))
        or isinstance(pred, _C.Tensor)
        and pred.numel() != 1
    ):
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    leaves = tree_leaves(operands) if isinstance(operands, (tuple, list)) else [None]
    if not all(isinstance(x, _C.Tensor) for x in leaves):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor "
            f"leaves, but got {operands}."
        )
    return (true_fn if pred else false_fn)(*operands)
