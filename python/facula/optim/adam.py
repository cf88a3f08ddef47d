"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from .optimizer import Optimizer, check_implementation, check_options, parameters_with_grad, rate

_adam = _C.ops._adam_


class Adam(Optimizer):
    """Steps scaled by running means of gradients and of their squares. ``weight_decay`` adds to the gradient.

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
        if len(betas) != 2:
            raise IndexError(f"betas must be a pair of numbers, got {betas}")
        for k, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {k}: {beta}")
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
        check_implementation(type(self).__name__, self.defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = self._loss_of(closure)
        with _C.GradMode(False):
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        """One call for all parameters that have done equally many steps, which is nearly always all of
        them.
        """
        by_step: dict[float, tuple[list, list, list, list, list]] = {}
        amsgrad = group["amsgrad"]
        for p in parameters_with_grad(group, type(self).__name__):
            s = self.state[p]
            if not s:
                s["step"] = 0.0
                s["exp_avg"] = _C.functions.zeros_like(p)
                s["exp_avg_sq"] = _C.functions.zeros_like(p)
                if amsgrad:
                    s["max_exp_avg_sq"] = _C.functions.zeros_like(p)
            s["step"] += 1
            lists = by_step.setdefault(s["step"], ([], [], [], [], []))
            lists[0].append(p)
            lists[1].append(p.grad)
            lists[2].append(s["exp_avg"])
            lists[3].append(s["exp_avg_sq"])
            if amsgrad:
                lists[4].append(s["max_exp_avg_sq"])
        beta1, beta2 = (float(b) for b in group["betas"])
        for step, lists in by_step.items():
            _adam(
                *lists,
                rate(group["lr"]),
                beta1,
                beta2,
                group["eps"],
                group["weight_decay"],
                1 - beta1**step,
                1 - beta2**step,
                group["decoupled_weight_decay"],
                group["maximize"],
            )

    # The number of steps is a float here and, as in PyTorch, a tensor in a state_dict.

    def _export_state(self, state: dict[str, Any]) -> dict[str, Any]:
        return {k: _C.tensor(v, dtype=_C.float32) if k == "step" else v for k, v in state.items()}

    def _import_state(self, state: dict[str, Any]) -> dict[str, Any]:
        return {k: float(v) if k == "step" else v for k, v in state.items()}
