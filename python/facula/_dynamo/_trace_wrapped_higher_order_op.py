"""A mode in which programs that are recorded index tensors."""

from __future__ import annotations

from typing import Any

from ..overrides import TorchFunctionMode


class TransformGetItemToIndex(TorchFunctionMode):
    """Indexing with a tensor inside of ``vmap`` gathers elements, which it always does here: the mode changes
    nothing.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))
