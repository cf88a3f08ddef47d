"""Pipes that are gone through."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from ._decorator import functional_datapipe
from .datapipe import DataChunk, IterDataPipe


class IterableWrapper(IterDataPipe):
    """A pipe of what is in an iterable."""

    def __init__(self, iterable: Any, deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator:
        import copy

        try:
            source = copy.deepcopy(self.iterable) if self.deepcopy else self.iterable
        except TypeError:  # a generator
            source = self.iterable
        yield from source

    def __len__(self) -> int:
        return len(self.iterable)


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """``fn`` of each item; of ``input_col`` alone, which it replaces, or ``output_col``."""

    def __init__(self, datapipe: Any, fn: Callable, input_col: Any = None, output_col: Any = None) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, output_col

    def _apply(self, data: Any) -> Any:
        at = self.input_col
        if at is None:
            return self.fn(data)
        several = isinstance(at, (list, tuple))
        value = self.fn(*(data[k] for k in at)) if several else self.fn(data[at])
        made = list(data) if isinstance(data, tuple) else dict(data) if isinstance(data, dict) else list(data)
        if self.output_col is None:
            made[at[0] if several else at] = value
            if several:
                for k in sorted(at[1:], reverse=True):
                    del made[k]
        elif self.output_col == -1:
            made.append(value)
        else:
            made[self.output_col] = value
        return tuple(made) if isinstance(data, tuple) else made

    def __iter__(self) -> Iterator:
        return map(self._apply, self.datapipe)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """The items of which ``filter_fn`` holds."""

    def __init__(self, datapipe: Any, filter_fn: Callable, input_col: Any = None) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator:
        for x in self.datapipe:
            if self.filter_fn(x if self.input_col is None else x[self.input_col]):
                yield x


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Lists of ``batch_size`` items."""

    def __init__(
        self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size = datapipe, batch_size
        self.drop_last, self.wrapper_class = drop_last, wrapper_class

    def __iter__(self) -> Iterator:
        batch: list = []
        for x in self.datapipe:
            batch.append(x)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe):
    """The items of lists, ``unbatch_level`` levels deep; -1: of all."""

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def _items(self, x: Any, level: int) -> Iterator:
        if level == 0 or not isinstance(x, list):
            yield x
            return
        for y in x:
            yield from self._items(y, level - 1)

    def __iter__(self) -> Iterator:
        for x in self.datapipe:
            yield from self._items(x, self.unbatch_level)


@functional_datapipe("shuffle")
class Shuffler(IterDataPipe):
    """The items in another order: each is picked at random of ``buffer_size`` that wait."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        self.datapipe = datapipe.unbatch(unbatch_level=unbatch_level) if unbatch_level else datapipe
        self.buffer_size, self._enabled, self._seed = buffer_size, True, None

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        self._seed = seed
        return self

    def __iter__(self) -> Iterator:
        from .... import _C

        if not self._enabled:
            yield from self.datapipe
            return
        seed = self._seed
        if seed is None:
            seed = int(_C.functions.randint(0, 2**62, ()).item())
        self._seed, rng = None, random.Random(seed)
        waiting: list = []
        for x in self.datapipe:
            if len(waiting) < self.buffer_size:
                waiting.append(x)
                continue
            k = rng.randint(0, self.buffer_size - 1)
            waiting[k], x = x, waiting[k]
            yield x
        rng.shuffle(waiting)
        yield from waiting

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("collate")
class Collator(Mapper):
    """Batches as ``collate_fn`` makes them: of tensors."""

    def __init__(self, datapipe: Any, collate_fn: Callable | None = None) -> None:
        from ..collate import default_collate

        super().__init__(datapipe, default_collate if collate_fn is None else collate_fn)


@functional_datapipe("concat")
class Concater(IterDataPipe):
    """The items of pipes one after the other."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator:
        for p in self.datapipes:
            yield from p

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(IterDataPipe):
    """Tuples of the items of pipes."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator:
        return zip(*self.datapipes)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


@functional_datapipe("mux")
class Multiplexer(IterDataPipe):
    """One item of each pipe in turn, until one ends."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator:
        for row in zip(*self.datapipes):
            yield from row


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe):
    """In a worker of a DataLoader its part of the items."""

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        self.source_datapipe = source_datapipe
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = None) -> None:
        if instance_id >= num_of_instances:
            raise ValueError(
                f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})"
            )
        self.num_of_instances, self.instance_id = num_of_instances, instance_id

    def __iter__(self) -> Iterator:
        from ..worker import get_worker_info

        worker, n, mine = get_worker_info(), self.num_of_instances, self.instance_id
        if worker is not None and n == 1:
            n, mine = worker.num_workers, worker.id
        for k, x in enumerate(self.source_datapipe):
            if k % n == mine:
                yield x
