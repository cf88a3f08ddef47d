"""Modules whose activations are recomputed in backward."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Any

from ....nn.modules.module import Module
from ....utils.checkpoint import checkpoint

__all__ = ["CheckpointImpl", "CheckpointWrapper", "apply_activation_checkpointing", "checkpoint_wrapper"]

_INNER = "_checkpoint_wrapped_module"


class CheckpointImpl(enum.Enum):
    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class CheckpointWrapper(Module):
    """A module whose calls are checkpoints. Its state has the names of the wrapped module."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: Any = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Any = None,
        **options: Any,
    ):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.checkpoint_impl = checkpoint_impl
        plain = partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = partial(checkpoint_fn or plain, **options)
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_INNER), name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module[key]  # type: ignore[index]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{_INNER}.", ""), p

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


def _without_prefix(module: Module, state: Any, prefix: str, local: Any) -> Any:
    inner = f"{prefix}{_INNER}."
    for name in [n for n in state if n.startswith(inner)]:
        state[prefix + name.removeprefix(inner)] = state.pop(name)
    return state


def _with_prefix(module: Module, state: Any, prefix: str, *args: Any) -> None:
    for name in [n for n in state if n.startswith(prefix)]:
        state[f"{prefix}{_INNER}.{name.removeprefix(prefix)}"] = state.pop(name)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: Any = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Any = None,
    **options: Any,
) -> Module:
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **options)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda module: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Wraps each submodule for which ``check_fn`` is true, the innermost first."""
    if auto_wrap_policy is not None:
        raise NotImplementedError(
            "apply_activation_checkpointing: auto_wrap_policy; say the modules by check_fn"
        )
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))
