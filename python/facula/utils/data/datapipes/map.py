"""Pipes of items by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._decorator import functional_datapipe
from .datapipe import MapDataPipe


class SequenceWrapper(MapDataPipe):
    """A pipe of the items of a sequence or a dictionary."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        import copy

        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe):
    """``fn`` of each item."""

    def __init__(self, datapipe: Any, fn: Callable) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)
