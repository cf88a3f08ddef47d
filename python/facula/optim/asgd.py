"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer, single
from .optimizer import at_least, check_options, rate

_asgd = _C.ops._asgd_


class ASGD(ListOptimizer):
    """Stochastic gradient descent with a decaying rate, which also averages the parameters over the
    steps.

    Source: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992.
    """

    _numbers = {"step": 0.0, "eta": 0.0, "mu": 1.0}

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_options(
            lr=(lr, rate(lr) >= 0),
            weight_decay=(weight_decay, weight_decay >= 0),
        )
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"ax": True}

    def _first(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        return {**super()._first(p, group), "eta": single(rate(group["lr"]))}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        _asgd(*lists, numbers["eta"], numbers["mu"], group["lambd"], group["weight_decay"], group["maximize"])
        lr, step = rate(group["lr"]), numbers["step"]
        numbers["eta"] = lr / (1 + group["lambd"] * lr * step) ** group["alpha"]
        numbers["mu"] = 1 / at_least(step - group["t0"], 1.0)
