"""Data sets, samplers and loaders: what does not depend on random numbers; and initial values."""

import math


def probe(torch, P):
    data, init = torch.utils.data, torch.nn.init
    t = torch.tensor

    def each(name, calls):
        for k, f in enumerate(calls):

            def run():
                return f()

            run.__name__ = f"{name}_{k}"
            P(run)

    class Numbers(data.Dataset):
        def __len__(self):
            return 7

        def __getitem__(self, k):
            if k >= 7:
                raise IndexError(k)
            return k * 10

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    pair = data.TensorDataset(torch.arange(6).view(3, 2), torch.arange(3))
    each(
        "datasets",
        [
            lambda: pair[1],
            lambda: len(pair),
            lambda: data.TensorDataset(torch.ones(2), torch.ones(3)),
            lambda: list(data.Subset(Numbers(), [2, 0])),
            lambda: list(data.ConcatDataset([Numbers(), Numbers()]))[5:9],
            lambda: data.ConcatDataset([Numbers()])[-1],
            lambda: data.ConcatDataset([]),
            lambda: len(Numbers() + Numbers()),
            lambda: data.StackDataset(Numbers(), Numbers())[1],
            lambda: data.StackDataset(a=Numbers(), b=Numbers())[2],
            lambda: data.StackDataset(Numbers(), pair),
            lambda: data.StackDataset(),
            lambda: list(data.ChainDataset([Stream(), Stream()])),
            lambda: list(Stream() + Stream()),
            lambda: [len(p) for p in data.random_split(Numbers(), [3, 4])],
            lambda: [len(p) for p in data.random_split(Numbers(), [0.5, 0.5])],
            lambda: data.random_split(Numbers(), [1, 2]),
            lambda: sorted(i for p in data.random_split(Numbers(), [0.3, 0.7]) for i in p),
            lambda: data.Dataset()[0],
        ],
    )
    each(
        "samplers",
        [
            lambda: list(data.SequentialSampler(Numbers())),
            lambda: sorted(data.RandomSampler(Numbers())),
            lambda: len(list(data.RandomSampler(Numbers(), num_samples=20))),
            lambda: list(data.BatchSampler(range(5), 2, False)),
            lambda: list(data.BatchSampler(range(5), 2, True)),
            lambda: len(data.BatchSampler(range(5), 2, True)),
            lambda: sorted(data.SubsetRandomSampler([5, 1])),
            lambda: list(data.WeightedRandomSampler([0.0, 1.0], 3)),
            lambda: data.RandomSampler(Numbers(), num_samples=0),
            lambda: data.BatchSampler(range(5), 0, True),
            lambda: data.WeightedRandomSampler([1.0], 0),
            lambda: data.RandomSampler(Numbers(), replacement=1),
        ],
    )

    def batches(*args, **kwargs):
        return [
            b.tolist() if hasattr(b, "tolist") else [c.tolist() if hasattr(c, "tolist") else c for c in b]
            for b in data.DataLoader(*args, **kwargs)
        ]

    each(
        "loader",
        [
            lambda: batches(Numbers(), batch_size=3),
            lambda: batches(Numbers(), batch_size=3, drop_last=True),
            lambda: batches(pair, batch_size=2),
            lambda: batches(Numbers(), batch_size=None),
            lambda: batches(Stream(), batch_size=2),
            lambda: batches(Stream(), batch_size=2, drop_last=True),
            lambda: batches(Numbers(), sampler=[3, 1]),
            lambda: batches(Numbers(), batch_sampler=[[3, 1], [0]]),
            lambda: batches(Numbers(), batch_size=4, collate_fn=lambda b: [sum(b)]),
            lambda: len(data.DataLoader(Numbers(), batch_size=3)),
            lambda: len(data.DataLoader(Stream(), batch_size=3)),
            lambda: sorted(sum(batches(Numbers(), shuffle=True), [])),
            lambda: data.DataLoader(Numbers(), num_workers=-1),
            lambda: data.DataLoader(Numbers(), shuffle=True, sampler=[1]),
            lambda: data.DataLoader(Stream(), shuffle=True),
            lambda: data.DataLoader(Numbers(), batch_size=None, drop_last=True),
            lambda: data.DataLoader(Numbers(), batch_sampler=[[1]], batch_size=2),
            lambda: data.DataLoader(Numbers(), prefetch_factor=2),
            lambda: data.DataLoader(Numbers(), timeout=-1),
            lambda: data.DataLoader(Numbers(), persistent_workers=True),
            lambda: batches(Numbers(), batch_size=3, num_workers=2),
            lambda: sorted(sum(batches(Stream(), batch_size=2, num_workers=2), [])),
            lambda: batches(pair, batch_size=2, num_workers=1),
            lambda: data.get_worker_info(),
            lambda: data.DataLoader(Numbers(), batch_size=0),
        ],
    )
    each(
        "collate",
        [
            lambda: data.default_collate([1, 2]),
            lambda: data.default_collate([1.5, 2.0]).dtype,
            lambda: data.default_collate([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
            lambda: data.default_collate([(1, t([1])), (2, t([3]))]),
            lambda: data.default_collate([True, False]),
            lambda: data.default_collate([t([1]), t([1, 2])]),
            lambda: data.default_collate([object()]),
            lambda: data.default_convert([t(1), "a", {"b": 2}]),
            lambda: data.default_collate([[1, 2], [3]]),
            lambda: data.default_collate([None]),
        ],
    )

    def orthogonal(*sizes, **options):
        w = init.orthogonal_(torch.empty(*sizes, dtype=torch.float64), **options).flatten(1)
        gram = w @ w.t() if w.shape[0] <= w.shape[1] else w.t() @ w
        return bool(
            (gram - torch.eye(gram.shape[0], dtype=torch.float64) * options.get("gain", 1) ** 2).abs().max()
            < 1e-12
        )

    each(
        "init",
        [
            lambda: orthogonal(5, 3),
            lambda: orthogonal(3, 5),
            lambda: orthogonal(20, 20),
            lambda: orthogonal(4, 3, 2, gain=2),
            lambda: init.orthogonal_(torch.empty(3)),
            lambda: init.dirac_(torch.empty(4, 2, 3), 2),
            lambda: init.dirac_(torch.empty(3, 2, 3, 3)),
            lambda: init.dirac_(torch.empty(3, 2)),
            lambda: init.dirac_(torch.empty(3, 2, 3), 2),
            lambda: (init.sparse_(torch.empty(10, 4), 0.25) == 0).sum(0),
            lambda: init.sparse_(torch.empty(4), 0.5),
            lambda: init.eye_(torch.empty(2, 3)),
            lambda: init.ones_(torch.empty(2)),
            lambda: init.calculate_gain("relu"),
            lambda: init.calculate_gain("leaky_relu", 0.3),
            lambda: init.calculate_gain("tanh"),
            lambda: init.calculate_gain("nothing"),
            lambda: init.xavier_uniform_(torch.empty(3)),
            lambda: bool(init.kaiming_uniform_(torch.empty(30, 50)).abs().max() <= math.sqrt(6 / 50)),
            lambda: bool(init.xavier_uniform_(torch.empty(30, 50), 2.0).abs().max() <= 2 * math.sqrt(6 / 80)),
            lambda: init.kaiming_normal_(torch.empty(3, 2), mode="bad"),
            lambda: bool((init.trunc_normal_(torch.empty(1000), std=2.0).abs() <= 2).all()),
            lambda: init.constant(torch.empty(2), 3.0),
            lambda: init.kaiming_uniform_(torch.empty(0, 2)).shape,
            lambda: init.eye_(torch.empty(2)),
            lambda: init.uniform_(torch.empty(3), 2.0, 2.0),
            lambda: init.calculate_gain("leaky_relu", "a"),
        ],
    )
