"""Steps of some of its optimizers."""

import torch
import torch_optimizer
from made import data, fill, show

for name in (
    "AdaBound",
    "AdamP",
    "DiffGrad",
    "Lamb",
    "NovoGrad",
    "QHAdam",
    "RAdam",
    "SGDW",
    "Yogi",
    "Shampoo",
    "AggMo",
    "Apollo",
):
    model, x, y = fill(torch.nn.Linear(4, 1)), data(16, 4), data(16, 1, seed=1)
    optimizer = getattr(torch_optimizer, name)(model.parameters(), lr=1e-2)
    for _ in range(4):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    show(name, loss)
