"""Muon."""

from __future__ import annotations

import math
from typing import Any

from .. import _C
from .optimizer import GroupOptimizer, parameters_by_layout, rate

Tensor = _C.Tensor


def _orthogonal(g: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Approximates the nearest semi-orthogonal matrix: iterating an odd polynomial moves singular values
    to 1.
    """
    a, b, c = coefficients
    x = g.bfloat16()
    tall = x.size(0) > x.size(1)
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = x.addmm(gram.addmm(gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x


class Muon(GroupOptimizer):
    """Steps along the momentum with equalized singular values. For matrices; use AdamW for other
    parameters.

    ``adjust_lr_fn``: "original" (or None) makes steps of matrices of any shape comparable,
    "match_rms_adamw" scales them to AdamW's size.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; Liu et al., "Muon
    is Scalable for LLM Training", 2025.
    """

    _traceable = True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        for name, value in (
            ("Learning rate", rate(lr)),
            ("momentum", momentum),
            ("weight decay", weight_decay),
        ):
            if value < 0:
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        if len(ns_coefficients) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        if ns_steps >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": nesterov,
                "ns_coefficients": ns_coefficients,
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}"
                    )

    def _step_group(self, group: dict[str, Any]) -> None:
        for p in parameters_by_layout(group, "Muon", takes_sparse=False)[0]:
            self._step_of(p, group)

    def _state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = _C.outside_of_trace(_C.functions.zeros_like, p)
        return state

    def _step_of(self, p: Tensor, group: dict[str, Any]) -> None:
        if p.is_complex():
            raise ValueError("Muon does not support complex parameters")
        buffer, lr = self._state(p, group)["momentum_buffer"], rate(group["lr"])
        buffer.lerp_(p.grad, 1 - group["momentum"])
        g = p.grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
        update = _orthogonal(g, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rows, columns = p.shape
        if group["adjust_lr_fn"] == "match_rms_adamw":
            scale = 0.2 * math.sqrt(max(rows, columns))
        else:
            scale = math.sqrt(max(1, rows / columns))
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(update, alpha=-lr * scale)


Muon.__module__ = __package__  # the module name in PyTorch's pickles
