"""Mixed precision on a processor, gradients gathered over batches, an averaged model, stochastic weight averaging."""

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rng = np.random.RandomState(0)
x = torch.from_numpy(rng.randn(128, 8).astype(np.float32))
y = (x[:, :2].prod(1) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=16)


def build():
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 2))
    weights = np.random.RandomState(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p.copy_(torch.as_tensor(weights.uniform(-0.3, 0.3, size=p.shape)))
        model[0].bias.fill_(0)
        model[3].bias.fill_(0)
    return model


model = build()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
accumulation_steps = 2
for epoch in range(6):
    running = 0.0
    for i, (inputs, target) in enumerate(loader):
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            output = model(inputs)
            loss = criterion(output, target) / accumulation_steps
        if epoch == i == 0:
            print(output.dtype, loss.dtype, model[0].weight.dtype, torch.is_autocast_enabled("cpu"))
        scaler.scale(loss).backward()
        if (i + 1) % accumulation_steps == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            ema.update_parameters(model)
        running += loss.item() * accumulation_steps
    print(f"epoch {epoch} loss {running / len(loader):.1f} scale {scaler.get_scale()}")
print(ema.n_averaged, ema.module[0].weight.shape, sorted(scaler.state_dict().items()))
bad = nn.Linear(2, 1)
bad_optimizer = torch.optim.SGD(bad.parameters(), lr=1.0)
before = bad.weight.detach().clone()
scaler.scale(bad(torch.tensor([[float("inf"), 1.0]])).sum()).backward()
scaler.step(bad_optimizer)
scaler.update()
print("skipped", torch.equal(before, bad.weight), scaler.get_scale())
try:
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)
except (RuntimeError, AssertionError) as error:
    print(type(error).__name__, error)

model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
swa_model = AveragedModel(model)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
swa_start, swa_scheduler = 4, SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
for epoch in range(8):
    for inputs, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), target)
        loss.backward()
        optimizer.step()
    if epoch > swa_start:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    print(f"{epoch} lr {optimizer.param_groups[0]['lr']:.4f} loss {loss.item():.2f}")
update_bn(loader, swa_model)
swa_model.eval()
with torch.no_grad():
    accuracy = (swa_model(x).argmax(1) == y).float().mean()
print(f"{accuracy:.2f}", swa_model.n_averaged.item(), list(swa_model.state_dict())[:2])
with torch.autocast("cpu", dtype=torch.bfloat16):
    a = torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    with torch.autocast("cpu", enabled=False):
        b = torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    c, d = torch.softmax(a, 0), a + b
print(a.dtype, b.dtype, c.dtype, d.dtype, a)
