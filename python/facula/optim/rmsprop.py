"""RMSprop."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer
from .optimizer import check_options, rate

_rmsprop = _C.ops._rmsprop_


class RMSprop(ListOptimizer):
    """Steps scaled by the root of a running mean of squared gradients; ``centered``: by the deviation.

    Source: Hinton, "Neural Networks for Machine Learning", lecture 6, 2012; ``centered``: Graves,
    "Generating Sequences With Recurrent Neural Networks", 2013.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(
            lr=(lr, rate(lr) >= 0),
            epsilon=(eps, eps >= 0),
            momentum=(momentum, momentum >= 0),
            weight_decay=(weight_decay, weight_decay >= 0),
            alpha=(alpha, alpha >= 0),
        )
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "alpha": alpha,
                "eps": eps,
                "centered": centered,
                "weight_decay": weight_decay,
                "capturable": capturable,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
            },
        )

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"square_avg": True, "momentum_buffer": group["momentum"] > 0, "grad_avg": group["centered"]}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        _rmsprop(
            *lists,
            rate(group["lr"]),
            group["alpha"],
            group["eps"],
            group["weight_decay"],
            group["momentum"],
            group["maximize"],
        )
