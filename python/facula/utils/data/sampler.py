"""Samplers: the order of indices, and their batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ... import _C

Tensor = _C.Tensor
T = TypeVar("T", covariant=True)


class Sampler(Generic[T]):
    """Iterates over indices; subclasses define ``__iter__``."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order, or with ``replacement`` random picks. Without ``generator``, uses one that
    is seeded from the default generator.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source, self.replacement, self._num_samples, self.generator = (
            data_source,
            replacement,
            num_samples,
            generator,
        )
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def chunks(self) -> Iterator[Tensor]:
        """The indices of one pass in order, as 1-D tensors that are drawn when they are asked for, so that
        a pass over more samples than fit into memory can begin.
        """
        f, n, count = _C.functions, len(self.data_source), self.num_samples
        generator = self.generator
        if generator is None:
            generator = _C.Generator().manual_seed(draw_seed())
        if self.replacement:
            for size in chunk_sizes(count):
                yield f.randint(0, n, [size], generator=generator)
        else:
            # PyTorch draws an order for a rest of 0 samples too; the next pass of `generator` depends on it.
            for at in range(0, count + 1 if n else 0, n or 1):
                yield f.randperm(n, generator=generator)[: count - at]

    def batches(self, size: int) -> Iterator[Tensor]:
        """Yields the indices of one pass in tensors of ``size`` elements; the last one may be shorter."""
        pending = None
        for chunk in self.chunks():
            pending = chunk if pending is None else _C.functions.cat([pending, chunk])
            whole = len(pending) - len(pending) % size
            yield from (pending[at : at + size] for at in range(0, whole, size))
            pending = pending[whole:] if whole < len(pending) else None
        if pending is not None:
            yield pending

    def __iter__(self) -> Iterator[int]:
        for chunk in self.chunks():
            yield from chunk.tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The ``indices`` in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for k in _C.functions.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[k]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices picked with probabilities proportional to ``weights``."""

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={num_samples}"
            )
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = _C.as_tensor(weights, dtype=_C.float64)
        if self.weights.dim() != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        if bool((self.weights < 0).any()) or not float(self.weights.sum()) > 0:
            raise RuntimeError("weights must not be negative, and not all zero")
        if not replacement and num_samples > int((self.weights > 0).sum()):
            raise RuntimeError(
                f"cannot pick {num_samples} different samples of {int((self.weights > 0).sum())} with a "
                f"weight"
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        f = _C.functions
        if self.replacement:
            # Inverse of the cumulative distribution, in Python: there are few weights compared with the
            # samples.
            from bisect import bisect_right

            sums = f.cumsum(self.weights, 0).tolist()
            last = max(k for k, w in enumerate(self.weights.tolist()) if w > 0)
            for size in chunk_sizes(self.num_samples):
                draws = f.rand([size], dtype=_C.float64, generator=self.generator) * sums[-1]
                yield from (min(bisect_right(sums, u), last) for u in draws.tolist())
        else:
            # The smallest exponential arrival times have the order of weighted picks without replacement
            # (Efraimidis and Spirakis, 2006).
            u = f.rand([len(self.weights)], dtype=_C.float64, generator=self.generator)
            arrival = -f.log(1 - u) / self.weights
            yield from f.argsort(arrival)[: self.num_samples].tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list]):
    """Lists of ``batch_size`` indices of another sampler."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


def chunk_sizes(count: int) -> Iterator[int]:
    """Sizes of the draws that together make ``count`` random numbers. A generator gives out its numbers in
    blocks of four; all chunks but the last are whole blocks, so the numbers are those of a single draw.
    """
    most = 1024
    for at in range(0, count, most):
        yield min(most, count - at)


def draw_seed(generator: Any = None) -> int:
    """Draws a seed for another generator."""
    return int(_C.functions.empty([], dtype=_C.int64).random_(generator=generator).item())
