"""Optimizers with sharded state: with one process, it has all of it."""

from __future__ import annotations

from typing import Any

from ...optim.optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """Wraps another optimizer of these parameters and keeps this process's shard of its state: all of it.

    >>> facula.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> w = facula.ones(2, requires_grad=True)
    >>> from facula.distributed.optim import ZeroRedundancyOptimizer
    >>> ZeroRedundancyOptimizer([w], facula.optim.SGD, lr=0.1).param_groups[0]["lr"]
    0.1
    >>> facula.distributed.destroy_process_group()
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        from .. import get_world_size

        get_world_size(process_group)  # raises if there is no group
        self.optim = optimizer_class(params, **defaults)
        super().__init__(self.optim.param_groups, dict(self.optim.defaults))
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        return self.optim.step(closure, **kwargs) if closure is not None else self.optim.step(**kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters; the inner optimizer has those of the constructor already."""
        if not any(param_group is g for g in self.optim.param_groups):
            self.optim.add_param_group(param_group)
            self.param_groups = self.optim.param_groups

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the shards of the state; there is only one."""

    def state_dict(self) -> dict[str, Any]:
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optim.load_state_dict(state_dict)
        self.param_groups, self.state = self.optim.param_groups, self.optim.state
