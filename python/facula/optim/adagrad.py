"""Adagrad."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer
from .optimizer import check_options, rate, with_values

_adagrad = _C.ops._adagrad_


class Adagrad(ListOptimizer):
    """Steps scaled by the root of the sum of all squared gradients.

    Source: Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization",
    2011.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_options(
            lr=(lr, rate(lr) >= 0),
            lr_decay=(lr_decay, lr_decay >= 0),
            weight_decay=(weight_decay, weight_decay >= 0),
            initial_accumulator_value=(initial_accumulator_value, initial_accumulator_value >= 0),
            epsilon=(eps, eps >= 0),
        )
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = self._first(p, group)

    def share_memory(self) -> None:
        """Moves the sums to memory that child processes share."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"sum": True}

    def _initial(self, kind: str, p: Any, group: dict[str, Any]) -> Any:
        value = group["initial_accumulator_value"]
        return _C.functions.full_like(p, complex(value, value) if p.is_complex() else value)

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        decayed = rate(group["lr"]) / (1 + (numbers["step"] - 1) * group["lr_decay"])
        _adagrad(*lists, decayed, group["eps"], group["weight_decay"], group["maximize"])

    def _update_sparse(self, group: dict[str, Any], numbers: dict[str, float], p: Any, sums: Any) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        # duplicate indices must be summed before squaring
        grad = (-p.grad if group["maximize"] else p.grad).coalesce()
        values = grad._values()
        sums.add_(with_values(grad, values.pow(2)))
        deviation = sums.sparse_mask(grad)._values().sqrt_().add_(group["eps"])
        decayed = rate(group["lr"]) / (1 + (numbers["step"] - 1) * group["lr_decay"])
        p.add_(with_values(grad, values / deviation), alpha=-decayed)
