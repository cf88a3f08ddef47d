"""Adamax."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer
from .optimizer import check_betas, check_options, rate

_adamax = _C.ops._adamax_


class Adamax(ListOptimizer):
    """Adam whose steps are scaled by the largest of the decayed gradients.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014, section 7.1.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
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
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    _scheduled = ("betas",)

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"exp_avg": True, "exp_inf": True}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        beta1, beta2 = (rate(b, "beta") for b in group["betas"])
        _adamax(
            *lists,
            rate(group["lr"]),
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            1 - beta1 ** numbers["step"],
            group["maximize"],
        )
