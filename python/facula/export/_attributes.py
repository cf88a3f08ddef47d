"""Attributes of modules during export: an export leaves a module as it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _C
from ..utils import _pytree as pytree

# Module's own attributes: the trace follows parameters, buffers and hooks, and restores what it changes.
_OWN = {
    "_backward_hooks", "_backward_pre_hooks", "_buffers", "_forward_hooks", "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_is_full_backward_hook", "_load_state_dict_post_hooks", "_load_state_dict_pre_hooks", "_modules",
    "_non_persistent_buffers_set", "_parameters", "_state_dict_hooks", "_state_dict_pre_hooks", "training",
    "_initialize_hook", "_load_hook",
}  # fmt: skip


@contextmanager
def attributes_restored(mod: Any) -> Iterator[None]:
    """Restores the attributes that the modules of ``mod`` assign while the context is active.

    A tensor that a traced call assigns has no data, so a later call cannot use it. The exported program does
    not return such attributes; a warning lists those that got new tensors.
    """
    modules = dict(mod.named_modules())
    before = {
        path: {k: pytree.tree_flatten(v) for k, v in _attributes(m).items()} for path, m in modules.items()
    }
    assigned: list[str] = []
    try:
        yield
    finally:
        for path, module in modules.items():
            names = _restored(module, before[path])
            assigned += [".".join(filter(None, ("self", path, name))) for name in names]
    if assigned:
        noun, verb = ("attributes", "were") if len(assigned) > 1 else ("attribute", "was")
        warnings.warn(
            f"The tensor {noun} {', '.join(assigned)} {verb} assigned during export. "
            "Such attributes must be registered as buffers using the `register_buffer` API.",
            stacklevel=5,
        )


def _attributes(module: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(module).items() if k not in _OWN}


def _restored(module: Any, before: dict[str, tuple[list[Any], Any]]) -> list[str]:
    """Restores a module's attributes; returns the names of those that got new tensors."""
    assigned = []
    for name, value in _attributes(module).items():
        items, structure = before.get(name, ([], None))
        now, structure_now = pytree.tree_flatten(value)
        if structure_now == structure and all(a is b for a, b in zip(now, items)):
            continue
        earlier = {id(x) for x in items}
        has_new_tensor = any(isinstance(x, _C.Tensor) and id(x) not in earlier for x in now)
        if has_new_tensor:
            assigned.append(name)
        if name in before:
            vars(module)[name] = pytree.tree_unflatten(items, structure)
        elif has_new_tensor:
            del vars(module)[name]
    for name in before.keys() - vars(module).keys():
        vars(module)[name] = pytree.tree_unflatten(*before[name])
    return assigned
