"""A communication hook for local SGD: gradients are averaged over a subgroup after the first iterations, and
PostLocalSGDOptimizer averages parameters over all ranks from time to time.
Source: Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", 2018.
"""

from __future__ import annotations

from typing import Any

from ..._groups import _get_default_group
from ..._reducer import GradBucket
from .default_hooks import _allreduce_fut

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """``post_local_gradient_allreduce``: whether the subgroup averages gradients after the first
    iterations.
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Counts an iteration at its last bucket."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Any:
    """The mean over all ranks in the first iterations, and over the subgroup later."""
    from .debugging_hooks import noop_hook

    everyone = state.process_group if state.process_group is not None else _get_default_group()
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return _allreduce_fut(everyone, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        return noop_hook(None, bucket)
    if state.subgroup is None:
        from ..._groups import new_subgroups

        state.subgroup, _ = new_subgroups(group_size=everyone.size())
    return _allreduce_fut(state.subgroup, bucket.buffer())
