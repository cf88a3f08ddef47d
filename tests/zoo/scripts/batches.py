"""Data as programs feed it: pairs and balanced batches, ragged sequences, streams with workers, splits, seeds, collation of everything."""

import collections
import random
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpad_sequence,
)
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
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

labels = torch.tensor([0, 1, 2] * 6 + [0, 0])


class Pairs(Dataset):
    def __init__(self, n):
        self.x = torch.arange(float(n)).view(n, 1)

    def __getitem__(self, index):
        other = (index + 1) % len(self)
        return (self.x[index], self.x[other]), torch.tensor(
            int(labels[index] == labels[other]), dtype=torch.float32
        )

    def __len__(self):
        return len(self.x)


class PKSampler(Sampler[list]):
    def __init__(self, labels, p, k):
        self.by_label = collections.defaultdict(list)
        for i, v in enumerate(labels.tolist()):
            self.by_label[v].append(i)
        self.p, self.k = p, k

    def __iter__(self):
        keys = sorted(self.by_label)
        for start in range(0, 4, self.k):
            yield [i for key in keys[: self.p] for i in self.by_label[key][start : start + self.k]]

    def __len__(self):
        return 4 // self.k


loader = DataLoader(Pairs(20), batch_sampler=PKSampler(labels, 3, 2))
for (a, b), same in loader:
    print(a.flatten().tolist(), b.flatten().tolist(), same, same.dtype)
print(
    len(loader),
    type(iter(loader)).__name__,
    type(loader.sampler).__name__,
    loader.batch_size,
    loader.drop_last,
)


class Sentences(Dataset):
    data = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10], []]

    def __len__(self):
        return len(self.data) - 1

    def __getitem__(self, i):
        return torch.tensor(self.data[i]), len(self.data[i])


def pad_collate(batch):
    batch.sort(key=lambda item: -item[1])
    xs, lengths = zip(*batch)
    padded = pad_sequence(xs, batch_first=True, padding_value=-1)
    return padded, torch.tensor(lengths), padded != -1


class Bucketed(BatchSampler):
    def __init__(self, data, batch_size):
        self.lengths = [data[i][1] for i in range(len(data))]
        super().__init__(SequentialSampler(data), batch_size, drop_last=False)

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
        yield from (order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size))


sentences = Sentences()
for padded, lengths, mask in DataLoader(
    sentences, batch_sampler=Bucketed(sentences, 2), collate_fn=pad_collate
):
    packed = pack_padded_sequence(padded, lengths, batch_first=True)
    print(
        padded,
        lengths,
        mask.sum(1),
        packed,
        pad_packed_sequence(packed, batch_first=True, padding_value=0),
        sep="\n",
    )
p = pack_sequence([torch.arange(2.0), torch.arange(3.0)], enforce_sorted=False)
print(
    p.sorted_indices,
    p.unsorted_indices,
    p.batch_sizes,
    p.data,
    p.is_cuda,
    [t.tolist() for t in unpad_sequence(*pad_packed_sequence(p))],
)


class Stream(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.start, self.end))
        per = -(-(self.end - self.start) // info.num_workers)
        first = self.start + info.id * per
        return iter(range(first, min(first + per, self.end)))


print(
    list(DataLoader(Stream(3, 7), num_workers=0)),
    sorted(int(v) for v in DataLoader(Stream(3, 10), num_workers=2, batch_size=None)),
)
print([b.tolist() for b in DataLoader(ChainDataset([Stream(0, 3), Stream(5, 7)]), batch_size=2)])
it = iter(DataLoader(Stream(0, 4), num_workers=2, batch_size=2, prefetch_factor=1, persistent_workers=True))
print(type(it).__name__, sorted(t.tolist() for t in it))


def worker_init(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)
    get_worker_info().dataset.tag = f"worker {worker_id} of {get_worker_info().num_workers}"


class Tagged(Dataset):
    tag = "main"

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return {"i": i, "tag": self.tag, "noise": torch.rand(()), "numpy": np.random.rand()}


def noise(seed):
    g = torch.Generator()
    g.manual_seed(seed)
    batches = list(DataLoader(Tagged(), batch_size=2, num_workers=2, worker_init_fn=worker_init, generator=g))
    return batches, torch.stack([b["noise"] for b in batches])


batches, first = noise(0)
print(
    [b["tag"] for b in batches],
    torch.equal(first, noise(0)[1]),
    torch.equal(first, noise(1)[1]),
    batches[0]["numpy"].dtype,
    batches[0]["i"],
)


class Point(NamedTuple):
    x: int
    y: Any


@dataclass
class Pinned:
    v: torch.Tensor

    def pin_memory(self):
        return self


batch = default_collate(
    [
        {"a": 1, "b": [1.5, (True, "s")], "p": Point(1, np.ones(2)), "n": np.float32(2)},
        {"a": 2, "b": [2.5, (False, "t")], "p": Point(3, np.zeros(2)), "n": np.float32(3)},
    ]
)
print(batch)
print(
    default_convert({"x": np.arange(2), "y": [1, np.float64(3)], "z": "s"}),
    default_collate([b"a", b"b"]),
    default_collate([torch.tensor(1), torch.tensor(2)]),
    default_collate([[], []]),
)
for bad in ([None, None], [[1, 2], [3]], [{"a": 1}, {"b": 1}], [np.array(["s"])]):
    try:
        default_collate(bad)
    except (TypeError, RuntimeError, KeyError) as error:
        print(type(error).__name__, str(error)[:70])
ds = TensorDataset(torch.arange(10), torch.arange(10) * 2)
print(
    ds[2:4],
    ds[[1, 3]],
    len(ds),
    ConcatDataset([ds, ds])[12],
    (ds + ds).cumulative_sizes,
    Subset(ds, [5, 1])[0],
    StackDataset(a=ds, b=range(10))[3],
)
a, b, c = random_split(ds, [0.5, 0.3, 0.2], generator=torch.Generator().manual_seed(42))
print(len(a), len(b), len(c), sorted(a.indices + b.indices + c.indices) == list(range(10)), type(a).__name__)
for sampler in (
    SequentialSampler(ds),
    RandomSampler(ds),
    RandomSampler(ds, replacement=True, num_samples=4),
    SubsetRandomSampler([1, 2, 3]),
    WeightedRandomSampler([0, 0, 1.0], 5),
    BatchSampler(SequentialSampler(ds), 4, True),
    DistributedSampler(ds, num_replicas=3, rank=1, shuffle=False),
    DistributedSampler(ds, num_replicas=3, rank=2, shuffle=False, drop_last=True),
):
    values = list(sampler)
    print(
        type(sampler).__name__,
        len(sampler),
        values if "Random" not in type(sampler).__name__ else set(values) <= set(range(10)),
    )
d = DistributedSampler(ds, num_replicas=2, rank=0, seed=3)
e0 = list(d)
d.set_epoch(1)
print(len(e0), e0 != list(d), d.total_size, d.num_samples)
g1, g2 = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
print(
    [x.tolist() for x, _ in DataLoader(ds, 4, shuffle=True, generator=g1)]
    == [x.tolist() for x, _ in DataLoader(ds, 4, shuffle=True, generator=g2)]
)


class Failing(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 2:
            raise KeyError("broken sample")
        return i


for workers in (0, 1):
    try:
        list(DataLoader(Failing(), num_workers=workers))
    except KeyError as error:
        print(
            workers,
            type(error).__name__,
            "broken sample" in str(error),
            "Caught KeyError in DataLoader worker process 0" in str(error),
        )
for options in (
    dict(batch_size=0),
    dict(num_workers=-1),
    dict(prefetch_factor=2),
    dict(persistent_workers=True),
    dict(timeout=-1),
    dict(shuffle=True, sampler=[0]),
    dict(batch_sampler=[[0]], batch_size=3),
    dict(dataset=Stream(0, 1), shuffle=True),
):
    try:
        DataLoader(**{"dataset": ds, **options})
    except ValueError as error:
        print("refused", str(error)[:60])
loader = DataLoader(ds, batch_size=3, drop_last=True, pin_memory=False)
print(
    len(loader),
    loader.dataset is ds,
    loader.num_workers,
    loader.collate_fn.__name__,
    loader.pin_memory,
    loader.timeout,
)
try:
    loader.batch_size = 5
except ValueError as error:
    print("refused", str(error)[:60])
print(next(iter(loader)), [len(x) for x, _ in loader])
