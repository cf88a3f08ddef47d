"""Adafactor."""

from __future__ import annotations

from typing import Any

from .. import _C
from .._queries import finfo
from ._listed import ListOptimizer
from .optimizer import rate, smaller, square_root

_adafactor = _C.ops._adafactor_


class Adafactor(ListOptimizer):
    """Steps scaled by the root of a running mean of squares, which is factored into a row and a column
    for matrices.

    ``eps`` is a lower bound of the mean squares (None: that of the dtype) and one of the parameter's root
    mean square, to which the learning rate is relative; ``d`` bounds the root mean square of a step.

    Source: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        for name, value, good, expected in (
            ("Learning rate", lr, rate(lr) >= 0, ">= 0"),
            ("beta2_decay", beta2_decay, beta2_decay <= 0, "<= 0"),
            ("epsilon1", eps[0], eps[0] is None or eps[0] >= 0, ">= 0"),
            ("epsilon2", eps[1], eps[1] >= 0, ">= 0"),
            ("Clipping threshold d", d, d >= 1, ">= 1"),
            ("weight_decay", weight_decay, weight_decay >= 0, ">= 0"),
        ):
            if not good:
                raise ValueError(f"{name} should be {expected} but is: {value}")
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": eps,
                "d": d,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": maximize,
            },
        )

    def _apart(self, p: Any) -> tuple:
        return p.dim() > 1, p.dtype

    def _first(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        if p.dim() <= 1:
            return {**self._numbers, "variance": _C.functions.zeros_like(p)}
        *outer, rows, columns = p.shape
        new = {"dtype": p.dtype, "device": p.device}
        return {
            **self._numbers,
            "row_var": _C.functions.zeros([*outer, rows, 1], **new),
            "col_var": _C.functions.zeros([*outer, 1, columns], **new),
        }

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"row_var": True, "col_var": True, "variance": True}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        lr, step, (eps1, eps2) = rate(group["lr"]), numbers["step"], group["eps"]
        _adafactor(
            *lists,
            lr,
            smaller(lr, 1 / square_root(step)),
            step ** group["beta2_decay"],
            finfo(lists[0][0].dtype).eps if eps1 is None else eps1,
            eps2,
            group["d"],
            group["weight_decay"],
            group["maximize"],
        )


Adafactor.__module__ = __package__  # the module name in PyTorch's pickles
