"""Adam for sparse gradients."""

from __future__ import annotations

import math
from typing import Any

from .. import _C
from ._sparse_rows import DENSE, TracedSparseAdam
from .optimizer import check_betas, check_options, parameters_by_layout, rate, with_values


class SparseAdam(TracedSparseAdam):
    """Adam that updates moments and parameters only at the indices of a sparse gradient.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_options(lr=(lr, rate(lr) > 0), epsilon=(eps, eps > 0))
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        places = [(k, i, p) for k, g in enumerate(self.param_groups) for i, p in enumerate(g["params"])]
        if sparse := [[k, i] for k, i, p in places if p.is_sparse]:
            raise ValueError(
                f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors"
            )
        if parts := [[k, i] for k, i, p in places if p.is_complex()]:
            raise ValueError(
                f"Complex params at indices {parts}: SparseAdam does not support complex parameters"
            )

    _numbers = {}  # the step count in its state is a plain number

    def _step_group(self, group: dict[str, Any]) -> None:
        dense, _, params = parameters_by_layout(group, "SparseAdam")
        if dense:
            raise RuntimeError(DENSE)
        for p in params:
            state = self.state[p]
            if not state:
                state.update(
                    step=0, exp_avg=_C.functions.zeros_like(p), exp_avg_sq=_C.functions.zeros_like(p)
                )
            state["step"] += 1
            self._update(p, state, group)

    def _update(self, p: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        # duplicate indices must be summed before squaring
        grad = (-p.grad if group["maximize"] else p.grad).coalesce()
        values = grad._values()
        if not values.numel():
            return

        def moved(mean: Any, towards: Any, by: float) -> Any:
            """Updates a mean at the indices of the gradient and returns its new values there."""
            old = mean.sparse_mask(grad)._values()
            step = towards.sub(old).mul_(by)
            mean.add_(with_values(grad, step))
            return step.add_(old)

        mean = moved(state["exp_avg"], values, 1 - beta1)
        square = moved(state["exp_avg_sq"], values.pow(2), 1 - beta2)
        step = float(state["step"])  # a traced step counts in a tensor
        size = rate(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        p.add_(with_values(grad, -size * mean.div_(square.sqrt_().add_(group["eps"]))))
