"""What registering a hook gives."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

__all__ = ["RemovableHandle", "unserializable_hook"]


class RemovableHandle:
    """Removes a hook: ``handle.remove()``, or at the end of a ``with`` block."""

    _next_id = 0

    def __init__(self, hooks: OrderedDict, on_change: Callable[[], None] | None = None) -> None:
        self.id = RemovableHandle._next_id
        RemovableHandle._next_id += 1
        self._hooks = weakref.ref(hooks)
        self._on_change = on_change

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None and self.id in hooks:
            del hooks[self.id]
            if self._on_change:
                self._on_change()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._hooks(), self.id, self._on_change

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id, self._on_change = (*state, None)[:3]
        self._hooks = weakref.ref(OrderedDict() if hooks is None else hooks)
        RemovableHandle._next_id = max(RemovableHandle._next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def unserializable_hook(f: Any) -> Any:
    """Marks a hook whose tensor warns when it is saved: the hook does not travel."""
    f.__torch_unserializable__ = True
    return f
