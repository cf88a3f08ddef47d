"""Adadelta."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer
from .optimizer import check_options, rate

_adadelta = _C.ops._adadelta_


class Adadelta(ListOptimizer):
    """Steps scaled by the ratio of the root mean squares of previous steps and of gradients.

    Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(
            lr=(lr, rate(lr) >= 0),
            rho=(rho, 0 <= rho <= 1),
            epsilon=(eps, eps >= 0),
            weight_decay=(weight_decay, weight_decay >= 0),
        )
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "capturable": capturable,
                "foreach": foreach,
                "differentiable": differentiable,
            },
        )

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"square_avg": True, "acc_delta": True}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        _adadelta(
            *lists, rate(group["lr"]), group["rho"], group["eps"], group["weight_decay"], group["maximize"]
        )
