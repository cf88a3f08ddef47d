"""An optimizer whose state is divided over ranks: each rank updates its share of the parameters.
Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2019.
"""

from __future__ import annotations

import copy
from typing import Any

from ... import _C
from ...optim.optimizer import Optimizer
from .._groups import _get_default_group, get_global_rank
from .._objects import gather_object
from ..algorithms.join import Join, Joinable, JoinHook
from ..utils import _broadcast_coalesced

__all__ = ["ZeroRedundancyOptimizer"]

Tensor = _C.Tensor


class _ZeROJoinHook(JoinHook):
    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        """Updates the share of this rank with the gradients that the others have reduced."""
        self.zero.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Wraps another optimizer and keeps the state of this rank's share of the parameters only.

    Parameters are divided by size: each goes, largest first, to the rank with the fewest elements. After a
    step every rank broadcasts its share.

    >>> store = facula.distributed.HashStore()
    >>> facula.distributed.init_process_group("gloo", store=store, world_size=1, rank=0)
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
        self.process_group = process_group if process_group is not None else _get_default_group()
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp is not supported; step after backward instead"
            )
        params = self._checked(params)
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self.global_rank = get_global_rank(self.process_group, self.rank)
        self._optim_constructor, self._optim_defaults = optimizer_class, defaults
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._all_state_dicts: list[dict[str, Any]] = []
        self.initialized = False
        super().__init__(params, dict(defaults))
        Joinable.__init__(self)
        self.initialized = True
        self._divide()
        self.optim = optimizer_class(self._own_groups(), **defaults)
        for ours, theirs in zip(self.param_groups, self.optim.param_groups):
            for key, value in theirs.items():
                if key != "params":
                    ours.setdefault(key, value)
        self.state = self.optim.state

    @staticmethod
    def _checked(params: Any) -> list[Any]:
        if isinstance(params, Tensor):
            raise TypeError(
                f"`params` argument should be an iterable of Tensors, but got {type(params).__name__}"
            )
        params = list(params)
        if not params:
            raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
        for p in params:
            if not isinstance(p, (Tensor, dict)):
                raise TypeError(
                    f"params argument should be an iterable of Tensors or dicts, got {type(p).__name__}"
                )
        return params

    # ---- shares

    def _divide(self) -> None:
        """Assigns each parameter to a rank."""
        sizes = [0] * self.world_size
        self._owner: dict[Tensor, int] = {}
        self._partition: list[list[list[Tensor]]] = [[] for _ in range(self.world_size)]
        for group in self.param_groups:
            parts: list[list[Tensor]] = [[] for _ in range(self.world_size)]
            for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
                rank = sizes.index(min(sizes))
                parts[rank].append(p)
                self._owner[p] = rank
                sizes[rank] += p.numel() if p.requires_grad else 0
            for rank, part in enumerate(parts):
                self._partition[rank].append(part)

    def _partition_parameters(self, params_per_rank: Any = None) -> list[list[dict[str, Any]]]:
        """Returns the parameter groups of each rank."""
        return [
            [{**g, "params": part} for g, part in zip(self.param_groups, parts)] for parts in self._partition
        ]

    def _own_groups(self) -> list[dict[str, Any]]:
        return self._partition_parameters()[self.rank]

    def _sync_settings(self) -> None:
        """Passes settings such as the learning rate, which schedulers change, to the inner optimizer."""
        for ours, theirs in zip(self.param_groups, self.optim.param_groups):
            for key, value in ours.items():
                if key != "params":
                    theirs[key] = value

    def _sync_params(self) -> None:
        for rank, parts in enumerate(self._partition):
            shared = [p.detach() for part in parts for p in part]
            if shared:
                _broadcast_coalesced(self.process_group, shared, root=rank)

    # ---- the interface of optimizers

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        """Updates this rank's share, and gets the shares of the others."""
        Join.notify_join_context(self)
        self._sync_settings()
        has_share = any(g["params"] for g in self.optim.param_groups)
        loss = None
        if has_share:
            loss = self.optim.step(closure, **kwargs) if closure is not None else self.optim.step(**kwargs)
        elif closure is not None:
            with _C.GradMode(True):
                loss = closure()
        self._sync_params()
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        if not self.initialized:
            return
        group = self.param_groups[-1]
        sizes = [0] * self.world_size
        for p, rank in self._owner.items():
            sizes[rank] += p.numel()
        parts: list[list[Tensor]] = [[] for _ in range(self.world_size)]
        for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
            rank = sizes.index(min(sizes))
            parts[rank].append(p)
            self._owner[p] = rank
            sizes[rank] += p.numel()
        for rank, part in enumerate(parts):
            self._partition[rank].append(part)
        self.optim.add_param_group({**group, "params": parts[self.rank]})

    # ---- checkpoints

    def _index_of(self) -> dict[Tensor, int]:
        params = [p for g in self.param_groups for p in g["params"]]
        return {p: k for k, p in enumerate(params)}

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the states of all ranks on one rank of the world, for ``state_dict()``."""
        self._sync_settings()
        index = self._index_of()
        own = {index[p]: s for p, s in self.optim.state.items()}
        every: list[Any] | None = [None] * self.world_size if self.global_rank == to else None
        gather_object(own, every, dst=to, group=self.process_group)
        self._all_state_dicts = every or []

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of all parameters, on the rank for which ``consolidate_state_dict`` was
        called.
        """
        if not self._all_state_dicts:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.global_rank})` on all ranks beforehand if you meant to "
                "save the "
                "global state."
            )
        index = self._index_of()
        state: dict[int, Any] = {}
        for part in self._all_state_dicts:
            state.update(part)
        groups = [
            {**{k: v for k, v in g.items() if k != "params"}, "params": [index[p] for p in g["params"]]}
            for g in self.param_groups
        ]
        return {"state": {k: state[k] for k in sorted(state)}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes this rank's share of the state of all parameters."""
        index = self._index_of()
        for ours, theirs in zip(self.param_groups, state_dict["param_groups"]):
            ours.update({k: v for k, v in theirs.items() if k != "params"})
        inner = self.optim.state_dict()
        local = [p for g in self.optim.param_groups for p in g["params"]]
        stored = state_dict["state"]
        states = {k: copy.deepcopy(stored[index[p]]) for k, p in enumerate(local) if index[p] in stored}
        self.optim.load_state_dict({**inner, "state": states})
        self.state = self.optim.state
        self._sync_settings()

    # ---- uneven inputs

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _ZeROJoinHook(self)

    @property
    def join_device(self) -> Any:
        return _C.device("cpu")

    @property
    def join_process_group(self) -> Any:
        return self.process_group
