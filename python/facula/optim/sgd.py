"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from .. import _C
from .optimizer import GroupOptimizer, check_implementation, check_options, parameters_by_layout, rate

_sgd = _C.ops._sgd_


class SGD(GroupOptimizer):
    """p -= lr * g; with momentum, g is a running sum; ``nesterov`` looks one step ahead.

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_options(
            lr=(lr, rate(lr) >= 0),
            momentum=(momentum, momentum >= 0),
            weight_decay=(weight_decay, weight_decay >= 0),
        )
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )
        check_implementation(type(self).__name__, self.defaults)

    _traceable = True
    _scheduled = ("momentum",)

    def _step_group(self, group: dict[str, Any]) -> None:
        params, grads, sparse = parameters_by_layout(group, "SGD")
        for p in sparse:
            self._step_sparse(p, group)
        momentum = group["momentum"]
        options = (
            rate(group["lr"]),
            group["weight_decay"],
            momentum,
            group["dampening"],
            group["nesterov"],
            group["maximize"],
        )
        if not _is_used(momentum):
            if params:
                _sgd(params, grads, [], *options, False)
            return
        started = [p for p in params if self.state[p].get("momentum_buffer") is not None]
        new = [p for p in params if self.state[p].get("momentum_buffer") is None]
        for p in new:
            self._state(p, group)
        if new and _C.is_tracing():  # a program repeats this step, but a first step happens only once
            started, new = params, []
        for chosen, first in ((started, False), (new, True)):
            if chosen:
                _sgd(
                    chosen,
                    [p.grad for p in chosen],
                    [self.state[p]["momentum_buffer"] for p in chosen],
                    *options,
                    first,
                )

    def _state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        if _is_used(group["momentum"]) and state.get("momentum_buffer") is None:
            if group["dampening"] and _C.is_tracing():
                raise NotImplementedError(
                    "SGD with dampening takes its first step otherwise than the rest\n"
                    "  hint: take a step before tracing"
                )
            state["momentum_buffer"] = _C.outside_of_trace(_C.functions.zeros_like, p)
        return state

    def _step_sparse(self, p: Any, group: dict[str, Any]) -> None:
        """Steps with a sparse gradient; its running sum is sparse too."""
        if group["weight_decay"]:
            raise RuntimeError("SGD: the weight_decay option is not compatible with sparse gradients")
        grad = -p.grad if group["maximize"] else p.grad
        if momentum := group["momentum"]:
            state = self.state[p]
            if (sums := state.get("momentum_buffer")) is None:
                sums = state["momentum_buffer"] = grad.detach().clone()
            else:
                sums.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(sums, alpha=momentum) if group["nesterov"] else sums
        p.add_(grad, alpha=-rate(group["lr"]))


def _is_used(momentum: Any) -> bool:
    """Returns whether the momentum is not 0; as an operand of a program it never is."""
    return isinstance(momentum, _C.Tensor) or momentum != 0
