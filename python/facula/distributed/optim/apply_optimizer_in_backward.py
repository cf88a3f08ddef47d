"""Optimizers that update a parameter as soon as backward has accumulated its gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__: list[str] = []


def _apply_optimizer_in_backward(
    optimizer_class: Any, params: Iterable[Any], optimizer_kwargs: dict[str, Any], register_hook: bool = True
) -> None:
    """Gives each parameter an optimizer, which steps when its gradient is there and frees the gradient."""
    for param in params:
        optimizers = param.__dict__.setdefault("_in_backward_optimizers", [])
        param.__dict__.setdefault("_optimizer_classes", []).append(optimizer_class)
        param.__dict__.setdefault("_optimizer_kwargs", []).append(optimizer_kwargs)
        optimizers.append(optimizer_class([param], **optimizer_kwargs))
        if len(optimizers) > 1 or not register_hook:
            continue

        def step(p: Any) -> None:
            for optimizer in p._in_backward_optimizers:
                optimizer.step()
            p.grad = None

        param.register_post_accumulate_grad_hook(step)


def _get_in_backward_optimizers(module: Any) -> list[Any]:
    """Returns the optimizers of a module's parameters."""
    return [o for p in module.parameters() for o in getattr(p, "_in_backward_optimizers", [])]
