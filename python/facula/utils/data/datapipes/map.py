"""Data pipes of items by key."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from ..dataset import Item
from ._decorator import functional_datapipe
from .datapipe import IterDataPipe, MapDataPipe, _OfBatches, _OfSeveral


class SequenceWrapper(MapDataPipe[Item]):
    """A pipe of the items of a sequence or a dictionary."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        import copy

        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe[Item]):
    """Applies ``fn`` to each item."""

    def __init__(self, datapipe: Any, fn: Callable) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class Batcher(_OfBatches, MapDataPipe[Item]):
    """Lists of ``batch_size`` items."""

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        first = index * self.batch_size
        last = min(first + self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[k] for k in range(first, last)])


@functional_datapipe("concat")
class Concater(_OfSeveral, MapDataPipe[Item]):
    """The items of pipes one after the other, numbered from 0."""

    def __getitem__(self, index: int) -> Any:
        k = index
        for p in self.datapipes:
            if k < len(p):
                return p[k]
            k -= len(p)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(_OfSeveral, MapDataPipe[Item]):
    """Tuples of the items of pipes."""

    def __getitem__(self, index: Any) -> tuple:
        return tuple(p[index] for p in self.datapipes)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


class Shuffler(IterDataPipe[Item]):
    """The items in random order; an iterable pipe."""

    def __init__(self, datapipe: Any, *, indices: list | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._enabled, self._seed = True, None

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        self._seed = seed
        return self

    def __iter__(self) -> Iterator:
        from .... import _C

        order = list(self.indices)
        if self._enabled:
            seed = int(_C.functions.randint(0, 2**62, ()).item()) if self._seed is None else self._seed
            self._seed = None
            order = random.Random(seed).sample(order, len(order))
        return (self.datapipe[k] for k in order)

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", Shuffler)
