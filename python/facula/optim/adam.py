"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._listed import ListOptimizer
from .optimizer import check_betas, check_options, rate

_adam = _C.ops._adam_


class Adam(ListOptimizer):
    """Steps scaled by running means of gradients and of their squares. ``weight_decay`` is added to the
    gradient.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014; ``amsgrad``: Reddi et al.,
    2018.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_options(
            lr=(lr, rate(lr) >= 0),
            epsilon=(eps, eps >= 0),
            weight_decay=(weight_decay, weight_decay >= 0),
        )
        check_betas(betas)
        tensors = [k for k, b in enumerate(betas) if isinstance(b, _C.Tensor)]
        if len(tensors) == 1:
            raise ValueError("betas must be either both floats or both Tensors")
        if foreach and not capturable:
            for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
                if isinstance(value, _C.Tensor):
                    raise ValueError(
                        f"{name} as a Tensor is not supported for capturable=False and foreach=True"
                    )
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )

    _scheduled = ("betas",)

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        return {"exp_avg": True, "exp_avg_sq": True, "max_exp_avg_sq": group["amsgrad"]}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Any]) -> None:
        beta1, beta2 = (rate(b, "beta") for b in group["betas"])
        _adam(
            *lists,
            rate(group["lr"]),
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            1 - beta1 ** numbers["step"],
            1 - beta2 ** numbers["step"],
            group["decoupled_weight_decay"],
            group["maximize"],
        )
