"""SparseAdam in traced functions, whose gradients are dense."""

from __future__ import annotations

from typing import Any

from .. import _C
from ..program import require, rows_taken
from .optimizer import GroupOptimizer, rate

Tensor = _C.Tensor
_f = _C.functions

DENSE = "SparseAdam does not support dense gradients, please consider Adam instead"


class TracedSparseAdam(GroupOptimizer):
    """The steps of SparseAdam in a traced function. A table's gradient is dense there; the trace tells which
    rows a sparse one would have, and only these rows of the table and of its moments change.
    """

    _steps_rows = True

    _traceable_in_programs = True

    def _trace_group(self, group: dict[str, Any]) -> None:
        for p in group["params"]:
            if p.grad is None:
                continue
            rows = rows_taken(p)
            if rows is None:
                raise RuntimeError(DENSE)
            outside = (p.grad != 0).any(-1) & ~rows  # of a table that is also used by other operators
            require(~outside.any(), RuntimeError, DENSE)
            self._update_rows(p, self._traced_state(p), rows, group)

    def _traced_state(self, p: Tensor) -> dict[str, Any]:
        state = self.state[p]

        def first() -> None:
            if not state:
                state.update(step=0, exp_avg=_f.zeros_like(p), exp_avg_sq=_f.zeros_like(p))
            if not isinstance(state["step"], Tensor):
                state["step"] = _C.tensor(float(state["step"]), dtype=_C.float32)

        _C.outside_of_trace(first)
        return state

    @staticmethod
    def _update_rows(p: Tensor, state: dict[str, Any], rows: Tensor, group: dict[str, Any]) -> None:
        """Steps the rows for which ``rows``, of bools, is true."""
        beta1, beta2 = group["betas"]
        count = state["step"].double() + 1
        state["step"].copy_(count)
        grad = -p.grad if group["maximize"] else p.grad
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        new_mean = mean + (grad - mean) * (1 - beta1)
        new_square = square + (grad * grad - square) * (1 - beta2)
        size = rate(group["lr"]) * (1 - beta2**count).sqrt() / (1 - beta1**count)
        moved = p - new_mean / (new_square.sqrt() + group["eps"]) * size.to(p.dtype)
        for old, new in ((mean, new_mean), (square, new_square), (p, moved)):
            old.copy_(_f.where(rows.unsqueeze(-1), new, old))
