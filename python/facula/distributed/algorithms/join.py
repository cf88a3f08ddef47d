"""Training with uneven inputs: a rank that has no more batches takes part in the collectives of those that
do.

The first joinable of the context manager counts, before each iteration, how many ranks still train. A rank
that has left its loop calls the hooks of the joinables, which mirror the collectives of one iteration, until
no rank trains.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from ... import _C
from .. import _collectives as collective
from .._groups import get_rank

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """The collectives of a joinable on a rank that has joined."""

    def main_hook(self) -> None:
        """Called once for each iteration of the ranks that still train."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called after all ranks have joined; ``is_last_joiner`` on those that joined last."""


class _JoinConfig(NamedTuple):
    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """An object with collectives in each iteration. It calls ``Join.notify_join_context(self)`` before
    them.
    """

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Returns the hook for a ``with`` block, whose keyword arguments these are."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of the tensors of the collectives of the context manager."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of the collectives of the context manager."""


class Join:
    """The context manager of a training loop whose number of iterations differs between ranks."""

    def __init__(
        self,
        joinables: Any,
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        self._joinables = list(joinables)
        if not self._joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._join_hooks = [j.join_hook(**kwargs) for j in self._joinables]
        self._enable, self._throw_on_early_termination = enable, throw_on_early_termination
        for k, joinable in enumerate(self._joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, k == 0)
        groups = [j.join_process_group for j in self._joinables]
        if any(g != groups[0] for g in groups):
            raise ValueError("Using join context manager with multiple process groups")
        self._process_group, self._rank = groups[0], get_rank(groups[0])

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if not self._enable or kind:
            return
        iterations = 0
        while self._still_training():
            if self._throw_on_early_termination:
                collective.all_reduce(_C.functions.ones(1), group=self._process_group)
                raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")
            for hook in self._join_hooks:
                hook.main_hook()
            iterations += 1
            if iterations == 1000:
                warnings.warn(
                    "Detected uneven input skew of greater than 1000. This means that rank "
                    f"{self._rank} has at least 1000 fewer inputs than other currently-active ranks.",
                    stacklevel=2,
                )
        for hook in self._join_hooks:
            hook.post_hook(iterations == 0)
        for joinable in self._joinables:
            joinable._join_config = _JoinConfig.construct_disabled_join_config()

    def _still_training(self) -> int:
        count = _C.functions.zeros(1)
        collective.all_reduce(count, group=self._process_group)
        return int(count.item())

    @staticmethod
    def notify_join_context(joinable: Any) -> Any:
        """Counts this rank as training; raises if a rank has joined and the context manager was told to."""
        if not hasattr(joinable, "_join_config"):
            raise AssertionError(
                f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor"
            )
        config = joinable._join_config
        if not config.is_first_joinable or not config.enable:
            return None
        group = joinable.join_process_group
        work = collective.all_reduce(_C.functions.ones(1), group=group, async_op=True)
        if config.throw_on_early_termination:
            joined = _C.functions.zeros(1)
            collective.all_reduce(joined, group=group)
            if joined.item():
                raise RuntimeError(
                    "Detected at least one rank that exhausted inputs. Throwing across all ranks."
                )
        return work
