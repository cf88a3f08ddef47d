"""Pinned copies of batches."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

from .... import _C


def pin_memory(data: Any, device: Any = None) -> Any:
    """``data`` with ``pin_memory()`` of every tensor, and of every object that has this method."""
    if isinstance(data, _C.Tensor) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, Mapping):
        items = {k: pin_memory(v, device) for k, v in data.items()}
        try:
            if isinstance(data, MutableMapping):
                clone = copy.copy(data)
                clone.update(items)
                return clone
            return type(data)(items)  # type: ignore[call-arg]
        except TypeError:
            return items
    if isinstance(data, tuple):
        values = [pin_memory(v, device) for v in data]
        return type(data)(*values) if hasattr(data, "_fields") else type(data)(values)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        values = [pin_memory(v, device) for v in data]
        try:
            if isinstance(data, MutableSequence):
                clone = copy.copy(data)
                for k, value in enumerate(values):
                    clone[k] = value
                return clone
            return type(data)(values)  # type: ignore[call-arg]
        except TypeError:
            return values
    return data
