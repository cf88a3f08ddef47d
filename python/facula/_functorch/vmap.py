"""The steps of ``vmap`` under PyTorch's inner names, for libraries with a ``vmap`` of other objects."""

from __future__ import annotations

import functools
from collections.abc import Callable

from .. import _C
from .._vmap import vmap as vmap
from ..utils._pytree import TreeSpec as TreeSpec
from ..utils._pytree import _broadcast_to_and_flatten as _broadcast_to_and_flatten
from ..utils._pytree import tree_flatten as tree_flatten
from ..utils._pytree import tree_map_ as tree_map_
from ..utils._pytree import tree_unflatten as tree_unflatten

Tensor = _C.Tensor
in_dims_t = int | tuple
out_dims_t = int | tuple[int, ...]


def is_batchedtensor(x: Tensor) -> bool:
    """Whether a tensor stands for one of a batch."""
    return isinstance(x, Tensor) and _C.batch_of(x) is not None


def get_unwrapped(x: Tensor) -> Tensor:
    """The batch that ``x`` stands for one of; ``x`` itself if it does not."""
    batch = _C.batch_of(x)
    return x if batch is None else batch[1]


def _get_name(func: Callable) -> str:
    if hasattr(func, "__name__"):
        return str(func.__name__)
    return (
        f"functools.partial({_get_name(func.func)}, ...)"
        if isinstance(func, functools.partial)
        else repr(func)
    )
