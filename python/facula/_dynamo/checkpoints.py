"""A form of ``utils.checkpoint`` for captures: it marks calls whose values programs compute again."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .. import _C
from ..utils import checkpoint as eager


def _plainly(function: Callable, args: tuple, kwargs: dict) -> Any:
    return eager.checkpoint(function, *args, **kwargs)


_plainly._dynamo_disable = "a checkpoint with a context_fn"  # type: ignore[attr-defined]


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable = eager.noop_context_fn,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Calls ``function``; a backward pass in the same program computes its values again."""
    if use_reentrant is None:
        warnings.warn(eager.use_reentrant_is_missing(), stacklevel=2)
    reentrant = use_reentrant is None or use_reentrant
    eager.check_options(reentrant, kwargs, context_fn, debug, determinism_check)
    if context_fn is not eager.noop_context_fn:
        return _plainly(
            function, args, {**kwargs, "use_reentrant": False, "context_fn": context_fn, "debug": debug}
        )
    required = any([isinstance(x, _C.Tensor) and x.requires_grad for x in args])
    if reentrant and not required:
        eager.check_backward_validity(args)
    outer = _C.enter_checkpoint()
    try:
        if not reentrant or required:
            return function(*args, **kwargs)
        with _C.GradMode(False):
            return function(*args, **kwargs)
    finally:
        _C.leave_checkpoint(outer)
