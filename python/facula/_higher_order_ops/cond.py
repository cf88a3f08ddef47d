"""A choice between two functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from ._regions import flat_function, is_recorded, record

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
    if isinstance(pred, _C.Tensor) and is_recorded(pred):
        return _recorded(pred, true_fn, false_fn, operands)
    return (true_fn if pred else false_fn)(*operands)


def _recorded(pred: _C.Tensor, true_fn: Callable, false_fn: Callable, operands: tuple | list) -> Any:
    flat, spec = tree_flatten(tuple(operands))
    specs: list[Any] = []
    functions = [flat_function(f, spec, specs) for f in (true_fn, false_fn)]

    results = record("cond", functions, [flat, flat], [pred, *flat])
    if specs[0] != specs[-1]:
        raise RuntimeError(f"cond: the branches return different structures: {specs[0]} and {specs[-1]}")
    return tree_unflatten(results, specs[0])
