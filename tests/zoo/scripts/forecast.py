"""Forecasting a series: windows as a Dataset, weighted sampling, a collate function, worker processes, quantiles."""

import math
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)

torch.manual_seed(2)
t = torch.arange(0, 240, dtype=torch.float32)
series = torch.sin(2 * math.pi * t / 24) + 0.3 * torch.sin(2 * math.pi * t / 7) + 0.002 * t
print(series[:4], series.std(), series.diff().abs().max())


class Windows(Dataset):
    def __init__(self, series, history=24, horizon=4, transform=None):
        self.windows = series.unfold(0, history + horizon, 1)
        self.history, self.transform = history, transform

    def __len__(self):
        return self.windows.shape[0]

    def __getitem__(self, index):
        if torch.is_tensor(index):
            index = index.tolist()
        window = self.windows[index]
        sample = {"past": window[: self.history], "future": window[self.history :], "start": index}
        if self.transform:
            sample = self.transform(sample)
        return sample


class Center:
    def __call__(self, sample):
        level = sample["past"].mean()
        return {**sample, "past": sample["past"] - level, "future": sample["future"] - level, "level": level}


def collate(samples):
    batch = torch.utils.data.default_collate(samples)
    batch["past"] = batch["past"].unsqueeze(-1)
    return batch


def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


data = Windows(series, transform=Center())
train_set, val_set = Subset(data, range(0, 180)), Subset(data, range(180, len(data)))
loader = DataLoader(
    train_set,
    batch_size=32,
    num_workers=2,
    collate_fn=collate,
    worker_init_fn=seed_worker,
    persistent_workers=True,
)
batch = next(iter(loader))
print({k: (tuple(v.shape), v.dtype) for k, v in batch.items()}, len(loader))


class Forecaster(nn.Module):
    def __init__(self, channels=16, horizon=4, quantiles=(0.1, 0.5, 0.9)):
        super().__init__()
        self.quantiles = quantiles
        self.conv = nn.ModuleList(
            nn.Conv1d(1 if d == 1 else channels, channels, 3, dilation=d, padding="same") for d in (1, 2, 4)
        )
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, horizon * len(quantiles))

    def forward(self, past):
        x = past.transpose(1, 2)
        for conv in self.conv:
            x = torch.relu(conv(x)) if x.shape[1] == 1 else x + torch.relu(conv(x))
        x = self.norm(x.mean(-1) + x[..., -1])
        return self.head(x).unflatten(-1, (-1, len(self.quantiles)))


def pinball(pred, target, quantiles):
    q = pred.new_tensor(quantiles)
    error = target.unsqueeze(-1) - pred
    return torch.maximum(q * error, (q - 1) * error).mean()


model = Forecaster()
rng = np.random.default_rng(0)
for name, p in model.named_parameters():
    if p.dim() > 1:
        nn.init.zeros_(p).add_(
            torch.tensor(rng.uniform(-0.3, 0.3, p.shape), dtype=p.dtype)
        ) if not p.requires_grad else None
        p.data = torch.tensor(rng.uniform(-0.3, 0.3, p.shape), dtype=p.dtype)
    elif "norm.weight" not in name:
        nn.init.zeros_(p)
print(model, sum(p.numel() for p in model.parameters()))
optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, epochs=8, steps_per_epoch=len(loader))
for epoch in range(8):
    total = torch.zeros(())
    for batch in loader:
        loss = pinball(model(batch["past"]), batch["future"], model.quantiles)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.detach() * len(batch["start"])
    if epoch % 3 == 0:
        print(f"{epoch}: {total / len(train_set):.3f}, lr {scheduler.get_last_lr()[0]:.5f}")
model.eval()
with torch.inference_mode():
    batch = collate([val_set[i] for i in range(len(val_set))])
    pred = model(batch["past"])
inside = ((batch["future"] >= pred[..., 0]) & (batch["future"] <= pred[..., 2])).float().mean()
print(
    "error small",
    bool((pred[..., 1] - batch["future"]).abs().mean() < 0.3),
    "inside",
    inside.shape,
    pred.is_inference(),
)

labels = torch.tensor([0] * 90 + [1] * 10)
weights = 1.0 / torch.bincount(labels).float()
sampler = WeightedRandomSampler(weights[labels], num_samples=2000, replacement=True)
drawn = labels[list(sampler)].float().mean().item()
print("balanced", abs(drawn - 0.5) < 0.06, len(sampler))
print(list(BatchSampler(SequentialSampler(range(7)), batch_size=3, drop_last=False)))
print(
    [
        len(part)
        for part in random_split(range(10), [0.5, 0.3, 0.2], generator=torch.Generator().manual_seed(42))
    ]
)
print(len(ConcatDataset([train_set, val_set])), (Windows(series) + Windows(series)).cumulative_sizes)


class Stream(IterableDataset):
    def __init__(self, start, end):
        super().__init__()
        self.start, self.end = start, end

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.start, self.end))
        per_worker = int(math.ceil((self.end - self.start) / float(info.num_workers)))
        begin = self.start + info.id * per_worker
        return iter(range(begin, min(begin + per_worker, self.end)))


print(
    list(DataLoader(Stream(3, 7), num_workers=0)), list(DataLoader(Stream(3, 9), num_workers=2, batch_size=2))
)


class Broken(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            raise IndexError("no such row")
        return index


try:
    list(DataLoader(Broken(), num_workers=1))
except IndexError as error:
    text = str(error).splitlines()
    print(text[0], "|", text[1], "|", text[-1])
for bad in (dict(batch_size=0), dict(shuffle=True, sampler=SequentialSampler(data)), dict(num_workers=-1)):
    try:
        DataLoader(data, **bad)
    except ValueError as error:
        print(error)
