"""Learning rates that warm up."""

import pytorch_warmup as warmup
import torch
from made import show

p = torch.nn.Parameter(torch.ones(2))
for kind in (warmup.LinearWarmup, warmup.ExponentialWarmup):
    optimizer = torch.optim.AdamW([p], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    warm, rates = kind(optimizer, 5), []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        p.sum().backward()
        optimizer.step()
        with warm.dampening():
            schedule.step()
    show(kind.__name__, rates)
