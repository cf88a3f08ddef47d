"""Feeding: map-style and iterable datasets, samplers, workers, collate functions, splits, what happens when one fails."""

import collections
import itertools
import math
import os
import sys
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)
from torch.utils.data.distributed import DistributedSampler


class Squares(Dataset):
    def __init__(self, n, transform=None):
        self.n, self.transform = n, transform

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        x = np.float32(i) ** 2
        return self.transform(x) if self.transform else x


class Lines(IterableDataset):
    """Lines of a file, shared among workers."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def __iter__(self):
        info = get_worker_info()
        with open(self.path) as f:
            lines = (line.rstrip("\n") for line in f)
            yield from lines if info is None else itertools.islice(lines, info.id, None, info.num_workers)


class Buckets(Sampler):
    def __init__(self, lengths, size):
        self.lengths, self.size = lengths, size

    def __iter__(self):
        order = np.argsort(self.lengths, kind="stable")
        for k in range(0, len(order), self.size):
            yield order[k : k + self.size].tolist()

    def __len__(self):
        return math.ceil(len(self.lengths) / self.size)


@dataclass
class Sample:
    x: torch.Tensor
    name: str


Pair = collections.namedtuple("Pair", ["first", "second"])


class SimpleCustomBatch:
    def __init__(self, data):
        transposed = list(zip(*data))
        self.inp, self.tgt = torch.stack(transposed[0], 0), torch.stack(transposed[1], 0)

    def pin_memory(self):
        self.inp = self.inp.pin_memory() if torch.cuda.is_available() else self.inp
        return self


def worker_init(worker_id):
    dataset = get_worker_info().dataset
    dataset.scale = worker_id + 1


class Scaled(Squares):
    scale = 0

    def __getitem__(self, i):
        info = get_worker_info()
        return {
            "i": i,
            "scale": self.scale,
            "worker": -1 if info is None else info.id,
            "n": 1 if info is None else info.num_workers,
        }


if __name__ == "__main__":
    print([b.tolist() for b in DataLoader(Squares(7), batch_size=3)])
    print(
        [b.tolist() for b in DataLoader(Squares(7), batch_size=3, drop_last=True)],
        len(DataLoader(Squares(7), 3)),
    )
    print(
        [b for b in DataLoader(Squares(3), batch_size=None)][-1],
        next(iter(DataLoader(Squares(3), batch_size=None))).dtype,
    )
    batch = default_collate(
        [{"a": 1, "b": (2.5, "x"), "c": Pair(np.ones(2), torch.zeros(1))} for _ in range(2)]
    )
    print(batch)
    print(default_convert([np.array([1, 2]), {"k": np.float64(3)}, "s"]))
    lengths = [5, 1, 4, 1, 3, 2]
    ragged = [torch.arange(n) for n in lengths]
    pad = lambda items: torch.nn.utils.rnn.pad_sequence(items, batch_first=True, padding_value=-1)  # noqa: E731
    for b in DataLoader(ragged, batch_sampler=Buckets(lengths, 3), collate_fn=pad):
        print(b.tolist())
    try:
        next(iter(DataLoader(ragged, batch_size=3)))
    except RuntimeError as error:
        print("refused:", str(error)[:52])
    try:
        default_collate([Sample(torch.ones(1), "a")])
    except TypeError as error:
        print("refused:", str(error)[:84])

    tensors = TensorDataset(torch.arange(8).view(4, 2), torch.arange(4))
    print(len(tensors), tensors[1], tensors[torch.tensor([0, 3])][1].tolist())
    joined = ConcatDataset([Squares(3), Squares(2)])
    print(len(joined), joined.cumulative_sizes, [float(joined[i]) for i in (0, 2, 3, -1)])
    stacked = StackDataset(x=Squares(4), y=tensors)
    print(len(stacked), stacked[2])
    parts = random_split(range(10), [0.5, 0.3, 0.2], generator=torch.Generator().manual_seed(0))
    print([len(p) for p in parts], sorted(sum((list(p) for p in parts), [])) == list(range(10)))
    print(
        list(Subset(Squares(9), [2, 4]))[1],
        list(SequentialSampler(range(3))),
        list(BatchSampler(range(5), 2, False)),
    )
    g = torch.Generator().manual_seed(3)
    print(
        sorted(RandomSampler(range(6), generator=g)),
        len(list(RandomSampler(range(4), replacement=True, num_samples=9))),
    )
    print(
        sorted(SubsetRandomSampler([1, 5, 7])),
        set(WeightedRandomSampler([0.0, 0.0, 1.0], 5, replacement=True)),
    )
    try:
        WeightedRandomSampler([1.0], 0)
    except ValueError as error:
        print("refused:", error)
    for rank in range(2):
        sampler = DistributedSampler(range(7), num_replicas=2, rank=rank, shuffle=False)
        sampler.set_epoch(1)
        print("rank", rank, list(sampler), len(sampler))
    first = [
        b.tolist() for b in DataLoader(range(6), 2, shuffle=True, generator=torch.Generator().manual_seed(5))
    ]
    again = [
        b.tolist() for b in DataLoader(range(6), 2, shuffle=True, generator=torch.Generator().manual_seed(5))
    ]
    print("repeats", first == again)

    # Workers.
    path = os.path.join(tempfile.mkdtemp(), "lines.txt")
    with open(path, "w") as f:
        f.write("\n".join(f"line {k}" for k in range(7)))
    print(list(DataLoader(Lines(path), batch_size=3)))
    print(sorted(x for b in DataLoader(Lines(path), batch_size=2, num_workers=2) for x in b))
    chain = DataLoader(ChainDataset([Lines(path), Lines(path)]), batch_size=None)
    print(sum(1 for _ in chain))
    loader = DataLoader(
        Scaled(6),
        batch_size=2,
        num_workers=2,
        worker_init_fn=worker_init,
        persistent_workers=True,
        prefetch_factor=1,
    )
    for _ in range(2):
        print(
            [(b["i"].tolist(), b["scale"].tolist(), b["worker"][0].item(), b["n"][0].item()) for b in loader]
        )
    print(len(loader), loader.num_workers)
    custom = DataLoader(
        TensorDataset(torch.ones(4, 2), torch.zeros(4)),
        batch_size=2,
        collate_fn=SimpleCustomBatch,
        pin_memory=False,
    )
    print([type(b).__name__ + str(tuple(b.inp.shape)) for b in custom])

    def fails(x):
        raise ValueError(f"no picture {x}")

    try:
        list(DataLoader(Squares(4, fails), batch_size=2, num_workers=1))
    except ValueError as error:
        print("from the worker:", str(error).splitlines()[0], "|", str(error).splitlines()[-1])
    for options in (
        {"num_workers": -1},
        {"batch_size": 2, "batch_sampler": [[0]]},
        {"shuffle": True, "sampler": [0]},
        {"persistent_workers": True},
        {"prefetch_factor": 2},
        {"timeout": -1},
    ):
        try:
            DataLoader(Squares(4), **options)
        except ValueError as error:
            print("refused:", str(error)[:60])
    try:
        DataLoader(Lines(path), shuffle=True)
    except ValueError as error:
        print("refused:", str(error)[:70])
    try:
        len(DataLoader(Lines(path)))
    except TypeError as error:
        print("refused:", error)
    sys.stdout.flush()
