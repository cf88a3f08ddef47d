"""Tells which modules a call belongs to, in the forward and in the backward pass."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

from .. import _C
from ..autograd.graph import register_multi_grad_hook
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from ._pytree import tree_leaves

__all__ = ["ModuleTracker"]

Tensor = _C.Tensor


def _with_gradient(x: Any) -> list[Tensor]:
    return [t for t in tree_leaves(x) if isinstance(t, Tensor) and t.requires_grad]


class ModuleTracker:
    """Within the ``with`` block, ``parents`` contains the names of the running modules, and ``"Global"``.
    A name is the path from the outermost module, which is named after its class.
    """

    def __init__(self) -> None:
        self._running: dict[str, int] = {
            "Global": 0
        }  # name: the number of the backward pass that entered it, 0 for a forward pass
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._hooks: list[Any] = []

    @property
    def parents(self) -> set[str]:
        """The names of the running modules."""
        now = _C.backward_number()
        for name, task in list(self._running.items()):
            if task not in (0, now):  # that backward pass ended without a gradient of the module's inputs
                del self._running[name]
        return set(self._running)

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass is running."""
        return _C.backward_number() != 0

    def _name(self, module: Any) -> str:
        if module not in self._names:
            self._names[module] = type(module).__name__
        name = self._names[module]
        if module not in self._seen:
            for child, m in module.named_children():
                self._names[m] = f"{name}.{child}"
            self._seen.add(module)
        return name

    def _enter(self, name: str, backward: bool) -> None:
        if name in self.parents:
            warnings.warn(
                "The module hierarchy tracking seems to be broken as this Module was already entered. "
                f"({name} during {'backward' if backward else 'forward'})",
                stacklevel=2,
            )
        self._running[name] = _C.backward_number() if backward else 0

    def _leave(self, name: str, backward: bool) -> None:
        if name not in self.parents:
            warnings.warn(
                "The module hierarchy tracking is confused as we're exiting a Module that was never entered. "
                f"({name} during {'backward' if backward else 'forward'})",
                stacklevel=2,
            )
        self._running.pop(name, None)

    def _before(self, module: Any, inputs: Any) -> None:
        name = self._name(module)
        self._enter(name, False)
        tensors = _with_gradient(inputs)
        if _C.is_grad_enabled() and tensors:
            hook = register_multi_grad_hook(tensors, lambda grads: self._leave(name, True), mode="all")
            self._hooks.append(hook)

    def _after(self, module: Any, inputs: Any, outputs: Any) -> None:
        name = self._name(module)
        self._leave(name, False)
        tensors = _with_gradient(outputs)
        if _C.is_grad_enabled() and tensors:
            hook = register_multi_grad_hook(tensors, lambda grad: self._enter(name, True), mode="any")
            self._hooks.append(hook)

    def __enter__(self) -> ModuleTracker:
        self._handles = (
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        )
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in (*self._handles, *self._hooks):
            handle.remove()
        self._hooks.clear()
