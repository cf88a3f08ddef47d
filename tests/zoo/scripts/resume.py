"""Training that stops and goes on: model, optimizer, schedule, scaler and random states, old formats, wrapped models."""

import copy
import io
import os
import pickle
import random
import tempfile
import warnings

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingWarmRestarts,
    LinearLR,
    SequentialLR,
    StepLR,
)
from torch.utils.data import DataLoader, TensorDataset

folder = tempfile.mkdtemp()
path = os.path.join(folder, "checkpoint.pth.tar")
data = np.random.RandomState(0)
X = torch.from_numpy(data.randn(64, 6)).float()
Y = (X.sum(1, keepdim=True) > 0).float()


def seed_everything(seed):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)


def build():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    warm = LinearLR(optimizer, start_factor=0.1, total_iters=3)
    cosine = CosineAnnealingWarmRestarts(optimizer, T_0=4, T_mult=2, eta_min=1e-3)
    return model, optimizer, SequentialLR(optimizer, [warm, cosine], milestones=[3])


def run(model, optimizer, scheduler, scaler, epochs):
    losses = []
    for _ in epochs:
        loader = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)
        for x, y in loader:
            x = x + torch.randn_like(x) * 0.01 * random.random() + np.random.rand() * 0.01
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        scheduler.step()
    return losses


seed_everything(7)
model, optimizer, scheduler = build()
scaler = torch.amp.GradScaler("cuda", enabled=False)
first = run(model, optimizer, scheduler, scaler, range(4))
state = {
    "epoch": 4,
    "state_dict": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "scheduler": scheduler.state_dict(),
    "scaler": scaler.state_dict(),
    "rng": (torch.get_rng_state(), np.random.get_state(), random.getstate()),
    "args": {
        "lr": 0.1,
        "names": ["a", "b"],
        "size": torch.Size([2, 3]),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
    },
}
torch.save(state, path)
straight = run(model, optimizer, scheduler, scaler, range(4, 8))

seed_everything(1234)
model2, optimizer2, scheduler2 = build()
checkpoint = torch.load(path, map_location="cpu", weights_only=False)
model2.load_state_dict(checkpoint["state_dict"])
optimizer2.load_state_dict(checkpoint["optimizer"])
scheduler2.load_state_dict(checkpoint["scheduler"])
scaler.load_state_dict(checkpoint["scaler"])
torch.set_rng_state(checkpoint["rng"][0])
np.random.set_state(checkpoint["rng"][1])
random.setstate(checkpoint["rng"][2])
resumed = run(model2, optimizer2, scheduler2, scaler, range(checkpoint["epoch"], 8))
print("goes on exactly", straight == resumed, len(first), checkpoint["args"])
print(
    "the same model",
    all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), model2.state_dict().values())),
)
print(
    "rates",
    [round(v, 6) for v in scheduler2.get_last_lr()],
    scheduler2.last_epoch,
    sorted(checkpoint["scheduler"]),
)
print("groups", {k: v for k, v in checkpoint["optimizer"]["param_groups"][0].items() if k != "params"})

# Parts that fit and parts that do not.
larger = nn.Sequential(
    nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 3), nn.Linear(3, 3)
)
try:
    larger.load_state_dict(checkpoint["state_dict"])
except RuntimeError as error:
    print(str(error).replace("\n\t", " | "))
ours = larger.state_dict()
fitting = {k: v for k, v in checkpoint["state_dict"].items() if k in ours and v.shape == ours[k].shape}
print(larger.load_state_dict(fitting, strict=False))
wrapped = nn.DataParallel(model2)
print(list(wrapped.state_dict())[:2], wrapped.module is model2, wrapped(X).shape)
stripped = {k.replace("module.", "", 1): v for k, v in wrapped.state_dict().items()}
print(build()[0].load_state_dict(stripped))
nn.modules.utils.consume_prefix_in_state_dict_if_present(prefixed := dict(wrapped.state_dict()), "module.")
print(sorted(prefixed) == sorted(stripped))

# Buffers in memory, whole models, older formats, things that are refused.
buffer = io.BytesIO()
torch.save(model2.state_dict(), buffer, _use_new_zipfile_serialization=False)
buffer.seek(0)
print("legacy", list(torch.load(buffer, weights_only=True))[-1], buffer.getbuffer().nbytes > 100)
torch.save(model2, os.path.join(folder, "whole.pt"))
try:
    torch.load(os.path.join(folder, "whole.pt"))
except pickle.UnpicklingError as error:
    print("refused", "weights_only" in str(error))
whole = torch.load(os.path.join(folder, "whole.pt"), weights_only=False)
print(torch.equal(whole.eval()(X), model2.eval()(X)), type(whole).__name__)
with torch.serialization.safe_globals([nn.Sequential, nn.Linear]):
    print(nn.Sequential in torch.serialization.get_safe_globals())
mapped = torch.load(path, mmap=True, weights_only=False)["state_dict"]["0.weight"]
print(
    tuple(mapped.shape),
    mapped.untyped_storage().nbytes(),
    torch.equal(mapped, checkpoint["state_dict"]["0.weight"]),
)
shared = torch.zeros(4)
torch.save({"a": shared, "b": shared[1:3]}, path)
again = torch.load(path)
again["b"].fill_(5)
print("shared", again["a"].tolist())
ema = torch.optim.swa_utils.AveragedModel(
    model2, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
)
for _ in range(3):
    ema.update_parameters(model2)
torch.optim.swa_utils.update_bn(DataLoader(TensorDataset(X, Y), batch_size=32), ema)
print(ema.n_averaged, list(ema.state_dict())[:2], torch.allclose(ema.module[0].weight, model2[0].weight))
copied = copy.deepcopy(optimizer2)
print(
    type(copied).__name__,
    len(copied.state),
    copied.param_groups[0]["params"][0] is not optimizer2.param_groups[0]["params"][0],
)
optimizer2.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.5, "name": "extra"})
print(len(optimizer2.param_groups), optimizer2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    fresh = torch.optim.Adam([nn.Parameter(torch.ones(1))])
    schedule = StepLR(fresh, 1)
    schedule.step()
print(len(caught), str(caught[0].message)[:60] if caught else "")
chained = ChainedScheduler([LinearLR(fresh, 0.5, total_iters=2), StepLR(fresh, 2, 0.1)])
for _ in range(4):
    fresh.step()
    chained.step()
print([round(v, 8) for v in chained.get_last_lr()])
handle = fresh.register_step_post_hook(lambda o, a, k: print("stepped", type(o).__name__))
fresh.step()
handle.remove()
