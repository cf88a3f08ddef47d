"""DataLoader: batches of a data set, prepared in this process or by worker processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

from ... import _C
from .collate import default_collate, default_convert
from .dataset import Dataset, Item, IterableDataset, TensorDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, draw_seed
from .worker import get_worker_info as get_worker_info

Tensor = _C.Tensor
_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]

_FIXED = frozenset("batch_size batch_sampler sampler drop_last dataset persistent_workers".split())


class DataLoader(Generic[Item]):
    """Iterates over batches of ``dataset``.

    With ``num_workers``, that many processes prepare batches in advance; tensors arrive through shared
    memory and batches in order. ``batch_size=None`` yields samples without batching.
    """

    def __init__(
        self,
        dataset: Dataset[Item],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler | Iterable | None = None,
        batch_sampler: Sampler | Iterable | None = None,
        num_workers: int = 0,
        collate_fn: Callable | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError(
                "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing."
            )
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing. let num_workers > 0 "
                "to enable "
                "multiprocessing, otherwise set prefetch_factor to None."
            )
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        stream = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if stream else _DatasetKind.Map
        if stream:
            for name, value in (("shuffle", shuffle), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value not in (None, False):
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                        f"{name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                    "drop_last"
                )
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
            )
        if sampler is None and stream:
            sampler = _InfiniteConstantSampler()
        elif sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)  # type: ignore[arg-type]
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        if multiprocessing_context is not None:
            import multiprocessing

            if not num_workers:
                raise ValueError("multiprocessing_context can only be used with num_workers > 0")
            if isinstance(multiprocessing_context, str):
                if multiprocessing_context not in multiprocessing.get_all_start_methods():
                    raise ValueError(
                        "multiprocessing_context should be one of "
                        f"{multiprocessing.get_all_start_methods()}, but got "
                        f"{multiprocessing_context!r}"
                    )
            elif not isinstance(multiprocessing_context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context should be a context or the name of one, not "
                    f"{type(multiprocessing_context).__name__}"
                )
        self.persistent_workers, self.multiprocessing_context = persistent_workers, multiprocessing_context
        self.pin_memory, self.pin_memory_device, self.in_order = pin_memory, pin_memory_device, in_order
        standard = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn if collate_fn is not None else standard
        self._pool: Any = None
        if pin_memory:
            import warnings

            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory "
                "won't be "
                "used.",
                UserWarning,
                stacklevel=2,
            )
        self._constructed = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and getattr(self, "_constructed", False):
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        if self._dataset_kind == _DatasetKind.Iterable:
            n = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        return len(self._index_sampler)  # type: ignore[arg-type]

    def __iter__(self) -> _BaseDataLoaderIter:
        return self._get_iterator()

    def _get_iterator(self) -> _BaseDataLoaderIter:
        """A new pass, in this process or by workers; subclasses override it."""
        kind = _MultiProcessingDataLoaderIter if self.num_workers else _SingleProcessDataLoaderIter
        return kind(self)

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are gathered in batches by a batch sampler."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable:
        return self.batch_sampler if self._auto_collation else self.sampler  # type: ignore[return-value]

    def _indexed_batches(self) -> Iterator | None:
        """Returns batches of a TensorDataset under the standard samplers: each tensor is indexed once,
        without creating samples.
        """
        dataset, batches = self.dataset, self.batch_sampler
        if not (
            type(dataset) is TensorDataset
            and self.collate_fn is default_collate
            and type(batches) is BatchSampler
        ):
            return None
        sampler, size = batches.sampler, batches.batch_size
        if type(sampler) not in (RandomSampler, SequentialSampler) or sampler.data_source is not dataset:  # type: ignore[attr-defined]
            return None

        def generate() -> Iterator[list[Tensor]]:
            count = len(sampler)  # type: ignore[arg-type]
            end = count - count % size if batches.drop_last else count
            if type(sampler) is RandomSampler:
                for index, _ in zip(sampler.batches(size), range(0, end, size)):
                    yield [_C.functions.index_select(t, 0, index) for t in dataset.tensors]
            else:
                for at in range(0, end, size):
                    yield [t[at : at + size].clone() for t in dataset.tensors]

        return generate()


class _BaseDataLoaderIter:
    """One pass over a loader's batches. The loader may be any object with the attributes of a DataLoader."""

    _values: Iterator

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        return next(self._values)

    def __len__(self) -> int:
        return len(self._loader)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """A pass in this process."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        draw_seed(loader.generator)  # drawn also without workers, so that later random numbers are the same
        indexed = loader._indexed_batches() if isinstance(loader, DataLoader) else None
        self._values = _batches(loader) if indexed is None else indexed


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """A pass by worker processes, which end with it unless the loader keeps them."""

    def __init__(self, loader: Any) -> None:
        from .worker import Pool

        super().__init__(loader)
        pool = getattr(loader, "_pool", None)
        if pool is None or not pool.alive:
            pool = Pool(loader)
        loader._pool = pool if loader.persistent_workers else None
        self._values = pool.run(loader, draw_seed(loader.generator))

    def _shutdown_workers(self) -> None:
        self._values.close()  # type: ignore[attr-defined]


def fetch(dataset: Any, index: Any, batched: bool, collate: Callable) -> Any:
    """Returns the batch of a list of indices, or the sample of one index."""
    if not batched:
        return collate(dataset[index])
    if collate is default_collate and type(dataset) is TensorDataset:
        rows = _C.tensor(index, dtype=_C.int64)
        return [_C.functions.index_select(t, 0, rows) if t.dim() else t for t in dataset.tensors]
    many = getattr(dataset, "__getitems__", None)
    return collate(many(index) if callable(many) and index else [dataset[i] for i in index])


def fetcher_of(loader: Any) -> Any:
    """Makes the fetcher of a pass over a loader."""
    return _DatasetKind.create_fetcher(
        loader._dataset_kind, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
    )


def _batches(loader: Any) -> Iterator:
    fetcher = fetcher_of(loader)
    for index in loader._index_sampler:
        try:
            batch = fetcher.fetch(index)
        except StopIteration:
            return
        yield batch


class _InfiniteConstantSampler(Sampler):
    """None without end: the sampler of streams, which are not asked for samples by index."""

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class _DatasetKind:
    """Whether samples are requested by index or come as a stream."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(
        kind: int, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool
    ) -> Any:
        """An object whose ``fetch(index)`` makes a batch; for a stream, the next ``len(index)`` samples."""
        make = _MapDatasetFetcher if kind == _DatasetKind.Map else _IterableDatasetFetcher
        return make(dataset, auto_collation, collate_fn, drop_last)


class _MapDatasetFetcher:
    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        self.dataset, self.auto_collation = dataset, auto_collation
        self.collate_fn, self.drop_last = collate_fn, drop_last

    def fetch(self, index: Any) -> Any:
        return fetch(self.dataset, index, self.auto_collation, self.collate_fn)


class _IterableDatasetFetcher(_MapDatasetFetcher):
    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter, self.ended = iter(dataset), False

    def fetch(self, index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = list(itertools.islice(self.dataset_iter, len(index)))
        self.ended = len(samples) < len(index)
        if not samples or self.ended and self.drop_last:
            raise StopIteration
        return self.collate_fn(samples)
