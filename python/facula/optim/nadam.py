"""Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer, single
from .optimizer import check_betas, check_options, rate

_nadam = _C.ops._nadam_


class NAdam(ListOptimizer):
    """Adam whose momentum looks one step ahead.

    Source: Dozat, "Incorporating Nesterov Momentum into Adam", 2016.
    """

    _numbers = {"step": 0.0, "mu_product": 1.0}

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
            momentum_decay=(momentum_decay, momentum_decay >= 0),
        )
        check_betas(betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
            },
        )

    _scheduled = ("betas",)

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"exp_avg": True, "exp_avg_sq": True}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        beta1, beta2 = (rate(b, "beta") for b in group["betas"])
        lr, step = rate(group["lr"]), numbers["step"]
        now, next_momentum = (
            beta1 * (1 - 0.5 * 0.96 ** (k * group["momentum_decay"])) for k in (step, step + 1)
        )
        numbers["mu_product"] = single(numbers["mu_product"] * single(now))
        product = numbers["mu_product"]
        _nadam(
            *lists,
            lr,
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            1 - beta2**step,
            lr * (1 - now) / (1 - product),
            lr * next_momentum / (1 - product * next_momentum),
            group["decoupled_weight_decay"],
            group["maximize"],
        )
