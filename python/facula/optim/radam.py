"""Rectified Adam."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer
from .optimizer import check_betas, check_options, rate, square_root

_radam = _C.ops._radam_


def _where(condition: Any, x: Any) -> Any:
    """Returns ``x`` where the condition holds, else 0."""
    if isinstance(x, _C.Tensor):
        return _C.functions.where(condition, x, 0.0)
    return x if condition else 0.0


class RAdam(ListOptimizer):
    """Adam with a rectified variance, which is ignored as long as there are too few steps for it.

    Source: Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2019.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(
            lr=(lr, rate(lr) >= 0),
            epsilon=(eps, eps >= 0),
            weight_decay=(weight_decay, weight_decay >= 0),
        )
        check_betas(betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "decoupled_weight_decay": decoupled_weight_decay,
                "differentiable": differentiable,
            },
        )

    _scheduled = ("betas",)

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"exp_avg": True, "exp_avg_sq": True}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        beta1, beta2 = (rate(b, "beta") for b in group["betas"])
        step = numbers["step"]
        correction2 = 1 - beta2**step
        most = 2 / (1 - beta2) - 1
        # the length of the simple moving average that approximates the exponential one
        length = most - 2 * step * beta2**step / correction2
        square = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        _radam(
            *lists,
            rate(group["lr"]),
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            1 - beta1**step,
            correction2,
            square_root(_where(length > 5, square)),
            group["decoupled_weight_decay"],
            group["maximize"],
        )
