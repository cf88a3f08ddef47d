"""A sampler for the processes of a distributed training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from typing import Any

from ... import _C
from .dataset import Item
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[Item]):
    """Every ``num_replicas``-th index, from ``rank`` on; with ``shuffle``, of an order that ``seed`` and
    ``set_epoch`` determine, the same in all processes. All processes get the same number: some indices
    twice, or with ``drop_last`` some not at all.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:  # taken from the default group, which must exist
            from ... import distributed

            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        n = len(dataset)
        cut = drop_last and n % num_replicas != 0
        self.num_samples = math.ceil((n - num_replicas if cut else n) / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        order: list[Any] = list(range(n))
        if self.shuffle:
            generator = _C.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = _C.functions.randperm(n, generator=generator).tolist()
        if not self.drop_last and order:
            order = (order * math.ceil(self.total_size / n))[: self.total_size]
        return iter(order[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Selects another order for the following passes."""
        self.epoch = epoch
