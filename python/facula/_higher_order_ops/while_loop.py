"""A loop as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils._pytree import tree_flatten, tree_unflatten
from ._regions import flat_function, is_recorded, record

__all__ = ["while_loop"]


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: tuple | list) -> Any:
    """Replaces ``carried_inputs`` by ``body_fn`` of them as long as ``cond_fn`` of them is true.

    >>> from facula._higher_order_ops import while_loop
    >>> step = lambda i, x: (i + 1, x * 2)
    >>> while_loop(lambda i, x: i < 3, step, (facula.tensor(0), facula.ones(2)))
    (tensor(3), tensor([8., 8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"Expect carried_inputs to be a tuple or list, but got {type(carried_inputs)}.")
    if is_recorded(carried_inputs):
        return _recorded(cond_fn, body_fn, carried_inputs)
    values = carried_inputs
    while True:
        pred = cond_fn(*values)
        if not isinstance(pred, bool) and not (
            isinstance(pred, _C.Tensor) and pred.dim() == 0 and pred.dtype == _C.bool
        ):
            raise RuntimeError(
                f"cond_fn must return a boolean scalar tensor or a boolean but got {type(pred)}"
            )
        if not pred:
            return values
        outputs = body_fn(*values)
        if not isinstance(outputs, (tuple, list)) or len(outputs) != len(values):
            raise RuntimeError("body_fn should return the same number of elements as carried_inputs")
        values = tuple(outputs)


def _recorded(cond_fn: Callable, body_fn: Callable, carried_inputs: tuple | list) -> Any:
    flat, spec = tree_flatten(tuple(carried_inputs))
    functions = [flat_function(f, spec, []) for f in (cond_fn, body_fn)]

    return tree_unflatten(record("while_loop", functions, [flat, flat], flat), spec)
