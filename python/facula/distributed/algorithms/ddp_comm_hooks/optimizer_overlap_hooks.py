"""A wrapper of communication hooks that updates the parameters of a bucket when its gradients are reduced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._reducer import GradBucket

__all__: list[str] = []


class _OptimizerHookState:
    """A functional optimizer, and the parameters that it updates."""

    def __init__(self, functional_optim: Any, params: Any = None) -> None:
        self.functional_optimizer = functional_optim
        if not hasattr(functional_optim, "step_param"):
            raise ValueError(f"Class {type(functional_optim)} must implement method step_param.")
        self.params_to_optimize = set(params) if params is not None else None


def _hook_then_optimizer(
    hook: Callable[..., Any], optimizer_state: _OptimizerHookState
) -> Callable[..., Any]:
    """Returns a hook that runs ``hook``, then a step of the optimizer for each parameter of the bucket."""

    def hook_then_optimizer_wrapper(hook_state: Any, bucket: GradBucket) -> Any:
        def step(done: Any) -> Any:
            value = done.value()
            chosen = optimizer_state.params_to_optimize
            for gradient, parameter in zip(bucket.gradients(), bucket.parameters()):
                if chosen is None or parameter in chosen:
                    optimizer_state.functional_optimizer.step_param(parameter, gradient)
            return value

        return hook(hook_state, bucket).then(step)

    return hook_then_optimizer_wrapper
