"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer
from .optimizer import check_options, rate

_rprop = _C.ops._rprop_


class Rprop(ListOptimizer):
    """Steps by the signs of gradients; their sizes grow while a sign persists and shrink when it changes.

    Source: Riedmiller and Braun, "A Direct Adaptive Method for Faster Backpropagation Learning", 1993.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(
            lr=(lr, rate(lr) >= 0),
        )
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(
            params,
            {
                "lr": lr,
                "etas": etas,
                "step_sizes": step_sizes,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"prev": True, "step_size": True}

    def _initial(self, kind: str, p: Any, group: dict[str, Any]) -> Any:
        if kind == "prev":
            return super()._initial(kind, p, group)
        size = rate(group["lr"])
        return _C.functions.full_like(p, complex(size, size) if p.is_complex() else size)

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        _rprop(*lists, *group["etas"], *group["step_sizes"], group["maximize"])
