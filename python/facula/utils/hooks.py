"""Handles and helpers of hooks."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .. import _C

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


class RemovableHandle:
    """Removes a hook: ``handle.remove()``, or at the end of a ``with`` block.

    Arguments:
        hooks_dict: the hooks by their ids, held weakly.
        on_change: called after the removal.
        extra_dict: a dictionary or a list of them, from which the same id is removed.
    """

    next_id = 0

    def __init__(
        self,
        hooks_dict: OrderedDict,
        on_change: Callable[[], None] | None = None,
        *,
        extra_dict: dict | list[dict] | None = None,
    ) -> None:
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        self._hooks = weakref.ref(hooks_dict)
        self._on_change = on_change
        extra = [extra_dict] if isinstance(extra_dict, dict) else extra_dict or []
        self._extra = tuple(map(weakref.ref, extra))

    def remove(self) -> None:
        hooks = self._hooks()
        if hooks is not None and self.id in hooks:
            del hooks[self.id]
            if self._on_change:
                self._on_change()
        for extra in self._extra:
            held = extra()
            if held is not None:
                held.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return self._hooks(), self.id, self._on_change, [extra() for extra in self._extra]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id, self._on_change, extra = (*state, None, [])[:4]
        self._hooks = weakref.ref(OrderedDict() if hooks is None else hooks)
        self._extra = tuple(weakref.ref(e) for e in extra if e is not None)
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def unserializable_hook(f: Any) -> Any:
    """Marks a hook that is not to be serialized, so that saving its tensor does not warn."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warns about hooks on a tensor that is being saved, unless they are marked: hooks are not
    serialized.
    """
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized. If this is expected, you can "
                f"decorate the function with @{_C.package_name()}.utils.hooks.unserializable_hook to "
                f"suppress this warning",
                stacklevel=2,
            )


class BackwardHook:
    """Calls ``user_hooks(module, grad_inputs, grad_outputs)`` and ``user_pre_hooks(module,
    grad_outputs)`` when gradients pass between the tensors that went through both of its methods.
    """

    def __init__(self, module: Any, user_hooks: Any, user_pre_hooks: Any) -> None:
        from ..nn.modules.module import _BackwardRecord

        self._record = _BackwardRecord(module, list(user_hooks), list(user_pre_hooks))

    def setup_input_hook(self, args: Any) -> Any:
        """Returns the inputs to use in place of ``args``."""
        single = not isinstance(args, tuple)
        watched = self._record.watch_inputs((args,) if single else args)
        return watched[0] if single else watched

    def setup_output_hook(self, args: Any) -> Any:
        """Returns the outputs to return in place of ``args``."""
        return self._record.watch_outputs(args)
