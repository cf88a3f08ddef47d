"""A form of ``utils.checkpoint`` for captures: it marks calls whose values programs compute again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Calls ``function``; a backward pass in the same program computes its values again."""
    outer = _C.enter_checkpoint()
    try:
        if use_reentrant is False or any([isinstance(x, _C.Tensor) and x.requires_grad for x in args]):
            return function(*args, **kwargs)
        with _C.GradMode(False):
            return function(*args, **kwargs)
    finally:
        _C.leave_checkpoint(outer)
