"""Forecasts of many stations: windows from workers, packed recurrent encoders, a decoder with masks, quantiles, beams."""

import itertools
import math
from collections import namedtuple
from functools import wraps

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
)
from torch.utils.checkpoint import checkpoint
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    Subset,
    default_collate,
    get_worker_info,
)

torch.set_default_dtype(torch.float64)
torch.set_printoptions(precision=4, sci_mode=False)
QUANTILES = (0.1, 0.5, 0.9)
Window = namedtuple("Window", "past future station meta")


def numbered(module, rate=1.1):
    with torch.no_grad():
        for k, (name, p) in enumerate(sorted(module.named_parameters())):
            if p.dim() > 1:
                p.copy_(
                    torch.sin(torch.arange(p.numel()) * (rate + 0.1 * k)).view_as(p) / math.sqrt(p.shape[-1])
                )
            elif "norm" not in name:
                p.zero_()
    return module


def eager(f):
    """Compiled where that helps; here it is called as it is."""
    compiled = torch.compile(f, dynamic=True, backend="eager")

    @wraps(f)
    def call(*args, **kwargs):
        return compiled(*args, **kwargs)

    return call


class Station(Dataset):
    def __init__(self, number, length=40):
        t = torch.arange(length) / 4
        self.series = torch.sin(t + number) + 0.3 * torch.cos(2.5 * t * (1 + 0.1 * number)) + 0.1 * number
        self.number = number

    def __len__(self):
        return len(self.series) - 16

    def __getitem__(self, i):
        n = 6 + (i + self.number) % 5
        past = self.series[i : i + n]
        return Window(
            past, self.series[i + n : i + n + 5], self.number, {"start": i, "name": f"s{self.number}"}
        )


class Stream(IterableDataset):
    """Each worker reads its own stations."""

    def __init__(self, stations):
        self.stations = stations

    def __iter__(self):
        info = get_worker_info()
        mine = self.stations if info is None else self.stations[info.id :: info.num_workers]
        for station in mine:
            yield from (
                (0 if info is None else info.id, station[i].station, i) for i in range(0, len(station), 8)
            )


class ByLength(Sampler):
    """Windows of the same length together."""

    def __init__(self, dataset):
        self.order = sorted(range(len(dataset)), key=lambda i: (len(dataset[i].past), i))

    def __iter__(self):
        return iter(self.order)

    def __len__(self):
        return len(self.order)


def collate(windows):
    lengths = torch.tensor([len(w.past) for w in windows])
    past = pad_sequence([w.past for w in windows], batch_first=True, padding_value=-9.0)
    rest = default_collate([(w.future, w.station, w.meta) for w in windows])
    return Window((past, lengths), *rest)


stations = [Station(k) for k in range(4)]
everything = ConcatDataset(stations)
train = Subset(everything, range(0, len(everything), 2))
batches = BatchSampler(ByLength(train), 12, drop_last=False)
loader = DataLoader(train, batch_sampler=batches, collate_fn=collate, num_workers=2, persistent_workers=True)
first = next(iter(loader))
print(
    len(everything),
    everything.cumulative_sizes,
    len(train),
    len(loader),
    first.past[0].shape,
    first.past[1].tolist(),
)
print(first.station, first.meta["start"], first.meta["name"][:3], first.future.dtype)
streamed = sorted(tuple(row) for row in DataLoader(Stream(stations), batch_size=None, num_workers=2))
print(len(streamed), streamed[:3], streamed[-1])
print(
    default_collate(
        [{"a": (1, np.float32(2)), "b": [torch.ones(2)]}, {"a": (3, np.float32(4)), "b": [torch.zeros(2)]}]
    )
)


class Encoder(nn.Module):
    def __init__(self, width, stations):
        super().__init__()
        self.station = nn.Embedding(stations, width, max_norm=1.0)
        self.inner = nn.GRU(1, width, num_layers=2, bidirectional=True, batch_first=True)
        self.outer = nn.LSTM(2 * width, width, proj_size=width // 2, batch_first=True)
        self.widen = nn.Linear(width // 2, width)

    def forward(self, past, lengths, station):
        packed = pack_padded_sequence(past.unsqueeze(-1), lengths, batch_first=True, enforce_sorted=False)
        packed = packed._replace(data=packed.data - packed.data.mean())
        inner, _ = self.inner(packed)
        inner = PackedSequence(
            torch.tanh(inner.data), inner.batch_sizes, inner.sorted_indices, inner.unsorted_indices
        )
        outer, (h, c) = self.outer(inner)
        memory, n = pad_packed_sequence(
            outer, batch_first=True, padding_value=0.0, total_length=past.shape[1]
        )
        hidden = torch.arange(past.shape[1]) >= n[:, None]
        return self.widen(memory) + self.station(station)[:, None], hidden, h


class Forecaster(nn.Module):
    def __init__(self, width=16, stations=4, steps=5):
        super().__init__()
        self.encoder = Encoder(width, stations)
        self.step = nn.Linear(1, width)
        self.register_buffer("position", torch.sin(torch.arange(steps * width) * 0.37).view(steps, width))
        layer = nn.TransformerDecoderLayer(
            width, 4, 32, dropout=0.0, activation=F.gelu, batch_first=True, norm_first=True
        )
        self.decoder = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(width))
        self.out = nn.Linear(width, len(QUANTILES))

    def decode(self, so_far, memory, hidden):
        x = self.step(so_far.unsqueeze(-1)) + self.position[: so_far.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(so_far.shape[1])
        decoded = self.decoder(x, memory, tgt_mask=mask, memory_key_padding_mask=hidden, tgt_is_causal=True)
        steps = torch.cumsum(F.softplus(self.out(decoded)) * torch.tensor([0.0, 1.0, 1.0]), -1)
        return steps + self.out(decoded)[..., :1]

    def forward(self, window, again=False):
        (past, lengths), future = window.past, window.future
        memory, hidden, _ = self.encoder(past, lengths, window.station)
        last = past.gather(1, lengths[:, None] - 1)
        given = torch.cat([last, future[:, :-1]], 1)
        return (
            checkpoint(self.decode, given, memory, hidden, use_reentrant=False)
            if again
            else self.decode(given, memory, hidden)
        )

    @torch.no_grad()
    def predict(self, window):
        (past, lengths), steps = window.past, window.future.shape[1]
        memory, hidden, _ = self.encoder(past, lengths, window.station)
        so_far, found = past.gather(1, lengths[:, None] - 1), []
        for _ in range(steps):
            found.append(self.decode(so_far, memory, hidden)[:, -1])
            so_far = torch.cat([so_far, found[-1][:, 1:2]], 1)
        return torch.stack(found, 1)


@eager
def pinball(found, wanted):
    q = torch.tensor(QUANTILES)
    error = wanted.unsqueeze(-1) - found
    return torch.maximum(q * error, (q - 1) * error).mean()


model = numbered(Forecaster())
print(sum(p.numel() for p in model.parameters()), [tuple(p.shape) for p in model.encoder.outer.parameters()])
first_loss = pinball(model(first), first.future)
first_loss.backward()
plain = {n: p.grad.clone() for n, p in model.named_parameters()}
model.zero_grad()
pinball(model(first, again=True), first.future).backward()
print(f"{first_loss.item():.8f}", all(torch.allclose(p.grad, plain[n]) for n, p in model.named_parameters()))

# What is padded is not seen, and neither is what comes later.
past, lengths = first.past
longer = first._replace(past=(F.pad(past, (0, 3), value=77.0), lengths))
print(torch.allclose(model(longer), model(first)), model.encoder(past, lengths, first.station)[2].shape)
changed = first._replace(future=first.future.clone())
changed.future[:, 3] += 5
print((model(changed) - model(first)).abs().amax((0, 2)) > 1e-9)

optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2, weight_decay=1e-3, decoupled_weight_decay=True)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=3)
fall = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, fall], milestones=[3])
for epoch in range(6):
    total = count = 0
    for window in loader:
        loss = pinball(model(window), window.future)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=math.inf)
        optimizer.step()
        total, count = total + loss.item() * len(window.future), count + len(window.future)
    schedule.step()
    print("epoch", epoch, f"{total / count:.7f}", f"{schedule.get_last_lr()[0]:.6f}")
model.eval()
found = model.predict(first)
print(
    found[0],
    (found.diff(dim=-1) >= 0).all(),
    ((found[..., 0] < first.future) & (first.future < found[..., 2])).double().mean(),
)
print(model.encoder.station.weight.norm(dim=1) <= 1 + 1e-9)

# Sequences, packed and not.
rows = [torch.arange(n, dtype=torch.float64) for n in (2, 4, 3)]
packed = pack_sequence(rows, enforce_sorted=False)
print(packed.batch_sizes, packed.sorted_indices, packed.data, packed.is_cuda)
print([r.tolist() for r in unpack_sequence(packed)], pad_packed_sequence(packed, padding_value=-1)[0].T)
cells, state = numbered(nn.GRUCell(1, 3)), torch.zeros(3, 3)
for t in range(4):
    alive = torch.tensor([len(r) > t for r in rows])
    x = torch.stack([r[min(t, len(r) - 1)] for r in rows])[:, None]
    state = torch.where(alive[:, None], cells(x, state), state)
gru = nn.GRU(1, 3)
with torch.no_grad():
    for mine, theirs in zip(
        gru.parameters(), (cells.weight_ih, cells.weight_hh, cells.bias_ih, cells.bias_hh)
    ):
        mine.copy_(theirs)
print(
    torch.allclose(gru(pack_sequence([r[:, None] for r in rows], enforce_sorted=False))[1][0], state), state
)

# The weather in words: beams over a table of transitions, with lengths taken into account.
words = "sun cloud rain snow end".split()
table = torch.sin(torch.arange(125.0) * 1.9).view(5, 5, 5).mul(2).log_softmax(-1)


def beams(width, steps=6, alpha=0.7):
    sequences, scores, done = torch.zeros(1, 2, dtype=torch.long), torch.zeros(1), []
    for step in range(steps):
        options = scores[:, None] + table[sequences[:, -2], sequences[:, -1]]
        if step < 3:
            options = options.index_fill(1, torch.tensor([4]), -math.inf)
        best, flat = options.flatten().topk(min(width, options.numel()))
        rows, symbols = torch.div(flat, 5, rounding_mode="floor"), flat % 5
        sequences, scores = torch.cat([sequences[rows], symbols[:, None]], 1), best
        ended = symbols == 4
        done += [
            (s / ((5 + step) / 6) ** alpha, q.tolist())
            for s, q in zip(scores[ended].tolist(), sequences[ended])
        ]
        sequences, scores = sequences[~ended], scores[~ended]
        if not len(scores):
            break
    return max(
        done + [(s / ((5 + steps) / 6) ** alpha, q.tolist()) for s, q in zip(scores.tolist(), sequences)]
    )


for width in (1, 3, 20):
    score, sequence = beams(width)
    print(width, f"{score:.6f}", " ".join(words[w] for w in sequence[2:]))
exact = max(
    sum(table[a, b, c].item() for a, b, c in zip((0, 0, *s), (0, *s), s))
    for s in itertools.product(range(4), repeat=4)
)
print(f"{exact:.6f}")
