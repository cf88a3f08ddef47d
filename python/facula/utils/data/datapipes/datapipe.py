"""Data pipes: data sets that are built from others step by step, ``pipe.map(f).batch(8)``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..dataset import Dataset, Item, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]


class _Named:
    """Registry of the classes that are methods of all pipes of their kind."""

    functions: dict[str, Callable]

    def __getattr__(self, name: str) -> Any:
        functions = type(self).functions
        if name in functions:
            return functools.partial(functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @classmethod
    def register_function(cls, function_name: str, function: Callable) -> None:
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Callable, enable_df_api_tracing: bool = False
    ) -> None:
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__


class IterDataPipe(_Named, IterableDataset[Item]):
    """A pipe that is iterated over: subclasses define ``__iter__``.

    >>> p = facula.utils.data.datapipes.iter.IterableWrapper(range(5))
    >>> list(p.map(lambda x: x * x).batch(2))
    [[0, 1], [4, 9], [16]]
    """

    functions: dict[str, Callable] = {}

    def reset(self) -> None:
        """Called at the beginning of a pass."""


class DFIterDataPipe(IterDataPipe[Item]):
    """A pipe of data frames."""


class MapDataPipe(_Named, Dataset[Item]):
    """A pipe of items by key: subclasses define ``__getitem__``, and ``__len__``."""

    functions: dict[str, Callable] = {}


class DataChunk(list):
    """A batch."""

    def __init__(self, items: Any) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        return indent + "[" + ", ".join(str(i) for i in iter(self)) + "]"

    def raw_iterator(self) -> Iterator:
        yield from self.items


class _OfSeveral:
    """A pipe over several others."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes


class _OfBatches:
    """A pipe of lists of ``batch_size`` items of another pipe."""

    def __init__(
        self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size = datapipe, batch_size
        self.drop_last, self.wrapper_class = drop_last, wrapper_class

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
