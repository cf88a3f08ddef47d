"""Iterable data pipes."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator
from typing import Any

from ..dataset import Item
from ._decorator import functional_datapipe
from .datapipe import IterDataPipe, _OfBatches, _OfSeveral

__path__: list[str] = []  # PyTorch has a package here, with several modules


def __getattr__(name: str) -> Any:
    """Returns ``Shuffler`` for ``ShufflerIterDataPipe``: PyTorch's modules have the long names."""
    short_name = name.removesuffix("IterDataPipe")
    if short_name != name and short_name in globals():
        return globals()[short_name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class IterableWrapper(IterDataPipe[Item]):
    """A pipe of the items of an iterable."""

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
class Mapper(IterDataPipe[Item]):
    """Applies ``fn`` to each item, or to ``input_col`` of it, and replaces that or ``output_col`` by the
    result.
    """

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
        items = (
            list(data) if isinstance(data, tuple) else dict(data) if isinstance(data, dict) else list(data)
        )
        if self.output_col is None:
            items[at[0] if several else at] = value
            if several:
                for k in sorted(at[1:], reverse=True):
                    del items[k]
        elif self.output_col == -1:
            items.append(value)
        else:
            items[self.output_col] = value
        return tuple(items) if isinstance(data, tuple) else items

    def __iter__(self) -> Iterator:
        return map(self._apply, self.datapipe)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("filter")
class Filter(IterDataPipe[Item]):
    """The items for which ``filter_fn`` is true."""

    def __init__(self, datapipe: Any, filter_fn: Callable, input_col: Any = None) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator:
        for x in self.datapipe:
            if self.filter_fn(x if self.input_col is None else x[self.input_col]):
                yield x


@functional_datapipe("batch")
class Batcher(_OfBatches, IterDataPipe[Item]):
    """Lists of ``batch_size`` items."""

    def __iter__(self) -> Iterator:
        batch: list = []
        for x in self.datapipe:
            batch.append(x)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe[Item]):
    """The items of nested lists, ``unbatch_level`` levels deep; -1: of all levels."""

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
class Shuffler(IterDataPipe[Item]):
    """The items in random order: each is picked from a buffer of ``buffer_size``."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        self.datapipe = datapipe.unbatch(unbatch_level=unbatch_level) if unbatch_level else datapipe
        self.buffer_size, self._shuffle_enabled, self._seed = buffer_size, True, None

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        self._shuffle_enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        self._seed = seed
        return self

    def __iter__(self) -> Iterator:
        from .... import _C

        if not self._shuffle_enabled:
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
class Collator(Mapper[Item]):
    """Batches converted by ``collate_fn``, to tensors by default."""

    def __init__(self, datapipe: Any, collate_fn: Callable | None = None) -> None:
        from ..collate import default_collate

        super().__init__(datapipe, default_collate if collate_fn is None else collate_fn)


@functional_datapipe("concat")
class Concater(_OfSeveral, IterDataPipe[Item]):
    """The items of pipes one after the other."""

    def __iter__(self) -> Iterator:
        for p in self.datapipes:
            yield from p

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(IterDataPipe[Item]):
    """Tuples of the items of pipes."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator:
        return zip(*self.datapipes)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


@functional_datapipe("mux")
class Multiplexer(IterDataPipe[Item]):
    """One item of each pipe in turn, until one pipe ends."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator:
        for row in zip(*self.datapipes):
            yield from row


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe[Item]):
    """In a worker of a DataLoader, the worker's share of the items."""

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


class _Branches:
    """One pass over a pipe that several branches share: items that one branch has read are buffered for
    the others.

    A branch that starts again starts a new pass for all.
    """

    def __init__(
        self, datapipe: Any, count: int, buffer_size: int, route: Callable[[Any], Any], what: str
    ) -> None:
        self.datapipe, self.buffer_size, self.route, self.what = datapipe, buffer_size, route, what
        self.passes, self.current = [0] * count, 0
        self.waiting: list[collections.deque] = [collections.deque() for _ in range(count)]
        self.source: Iterator | None = None

    def begin(self, branch: int) -> int:
        self.passes[branch] = self.passes[branch] + 1 if self.passes[branch] == self.current else self.current
        if self.passes[branch] > self.current:
            self.current += 1
            self.source = iter(self.datapipe)
            for queue in self.waiting:
                queue.clear()
        return self.current

    def read(self, branch: int, began: int) -> Iterator:
        while True:
            if began != self.current:
                raise RuntimeError(f"{self.what}: this iterator ended when another pass over the pipe began")
            while not self.waiting[branch]:
                try:
                    assert self.source is not None
                    x = next(self.source)
                except StopIteration:
                    return
                for k in self.route(x):
                    self.waiting[k].append(x)
                if 0 <= self.buffer_size < max(map(len, self.waiting)):
                    raise BufferError(
                        f"{self.what} buffer overflow,buffer size {self.buffer_size} is insufficient."
                    )
            yield self.waiting[branch].popleft()


class _Branch(IterDataPipe[Item]):
    """One of the pipes that ``fork`` and ``demux`` return."""

    def __init__(
        self, branches: _Branches, number: int, each: Callable, length: Callable[[], int] | None
    ) -> None:
        self.branches, self.number, self.each, self.length = branches, number, each, length

    def __iter__(self) -> Iterator:
        return map(self.each, self.branches.read(self.number, self.branches.begin(self.number)))

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length()


def _same(x: Any) -> Any:
    return x


@functional_datapipe("fork")
class Forker(IterDataPipe[Item]):
    """A list of ``num_instances`` pipes with the same items. ``copy``: None, "shallow" or "deep"."""

    def __new__(
        cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None
    ) -> Any:
        import copy as copying

        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
        kinds: dict[str | None, Callable] = {None: _same, "shallow": copying.copy, "deep": copying.deepcopy}
        if copy not in kinds:
            raise ValueError(
                f"Unknown copy method `{copy}` requested, choose one of None, `shallow` or `deep`."
            )
        if num_instances == 1:
            return datapipe
        everyone = range(num_instances)
        branches = _Branches(datapipe, num_instances, buffer_size, lambda x: everyone, "ForkerIterDataPipe")
        return [_Branch(branches, k, kinds[copy], lambda: len(datapipe)) for k in everyone]


@functional_datapipe("demux")
class Demultiplexer(IterDataPipe[Item]):
    """``num_instances`` pipes; ``classifier_fn`` maps each item to a pipe's number. None is dropped or an
    error.
    """

    def __new__(
        cls,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable,
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")

        def route(x: Any) -> tuple:
            k = classifier_fn(x)
            if k is None and drop_none:
                return ()
            if k is None or not 0 <= k < num_instances:
                raise ValueError(
                    f"Output of the classification fn should be between 0 and {num_instances - 1}. {k} is "
                    "returned."
                )
            return (k,)

        branches = _Branches(datapipe, num_instances, buffer_size, route, "DemultiplexerIterDataPipe")
        return [_Branch(branches, k, _same, None) for k in range(num_instances)]


@functional_datapipe("groupby")
class Grouper(IterDataPipe[Item]):
    """Lists of at most ``group_size`` items with equal ``group_key_fn``.

    If ``buffer_size`` items are waiting, the largest group is yielded, or dropped if it has fewer than
    ``guaranteed_group_size`` items and ``drop_remaining`` is set.
    """

    def __init__(
        self,
        datapipe: Any,
        group_key_fn: Callable,
        *,
        keep_key: bool = False,
        buffer_size: int = 10000,
        group_size: int | None = None,
        guaranteed_group_size: int | None = None,
        drop_remaining: bool = False,
    ) -> None:
        if guaranteed_group_size is None:
            guaranteed_group_size = group_size
        elif group_size is None or not 0 < guaranteed_group_size <= group_size:
            raise AssertionError("guaranteed_group_size must be > 0 and <= group_size")
        self.datapipe, self.group_key_fn, self.keep_key = datapipe, group_key_fn, keep_key
        self.buffer_size, self.group_size, self.drop_remaining = buffer_size, group_size, drop_remaining
        self.least = guaranteed_group_size

    def _wrapped(self, key: Any, items: list) -> Any:
        return (key, items) if self.keep_key else items

    def _largest(self, groups: dict) -> tuple[Any, list, bool]:
        key = max(groups, key=lambda k: len(groups[k]))
        items = groups.pop(key)
        enough = self.least is None or len(items) >= self.least
        if not enough and not self.drop_remaining:
            raise RuntimeError("Failed to group items", str(items))
        return key, items, enough

    def __iter__(self) -> Iterator:
        groups: dict[Any, list] = {}
        waiting = 0
        for x in self.datapipe:
            key = self.group_key_fn(x)
            groups.setdefault(key, []).append(x)
            waiting += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                waiting -= self.group_size
                yield self._wrapped(key, groups.pop(key))
            elif waiting == self.buffer_size:
                key, items, enough = self._largest(groups)
                waiting -= len(items)
                if enough:
                    yield self._wrapped(key, items)
        for key, items in groups.items():
            if self.least is None or len(items) >= self.least or not self.drop_remaining:
                yield self._wrapped(key, items)


class Sampler(IterDataPipe[Item]):
    """The items at the indices that a sampler draws."""

    def __init__(
        self, datapipe: Any, sampler: Any = None, sampler_args: tuple = (), sampler_kwargs: dict | None = None
    ) -> None:
        from ..sampler import SequentialSampler

        kind = SequentialSampler if sampler is None else sampler
        self.datapipe = datapipe
        self.sampler = kind(*(sampler_args or ()), data_source=datapipe, **(sampler_kwargs or {}))

    def __iter__(self) -> Iterator:
        items = list(self.datapipe)
        return (items[k] for k in self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


@functional_datapipe("list_files")
class FileLister(IterDataPipe[Item]):
    """The paths of files in folders whose names match one of ``masks``."""

    def __init__(
        self,
        root: Any = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        self.datapipe = IterableWrapper([root] if isinstance(root, str) else root)
        self.masks = [masks] if isinstance(masks, str) and masks else list(masks)
        self.recursive, self.abspath, self.length = recursive, abspath, length

    def __iter__(self) -> Iterator[str]:
        import fnmatch
        import os

        for root in self.datapipe:
            for folder, folders, files in os.walk(os.path.abspath(root) if self.abspath else root):
                if self.recursive:
                    folders.sort()
                else:
                    folders.clear()
                for name in sorted(files):
                    if not self.masks or any(fnmatch.fnmatch(name, mask) for mask in self.masks):
                        yield os.path.join(folder, name)

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("open_files")
class FileOpener(IterDataPipe[Item]):
    """Pairs of a path and the opened file."""

    def __init__(self, datapipe: Any, mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe, self.mode, self.encoding, self.length = datapipe, mode, encoding, length

    def __iter__(self) -> Iterator:
        mode = self.mode if "r" in self.mode else "r" + self.mode
        for path in self.datapipe:
            yield path, open(path, mode, encoding=self.encoding)

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("read_from_stream")
class StreamReader(IterDataPipe[Item]):
    """Pairs of a path and data read from its file, in pieces of ``chunk`` bytes."""

    def __init__(self, datapipe: Any, chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator:
        for path, stream in self.datapipe:
            while data := stream.read(self.chunk):
                yield path, data
            stream.close()
