"""Steps of Prodigy."""

import torch
from made import data, fill, show
from prodigyopt import Prodigy

model, x, y = fill(torch.nn.Linear(4, 1)), data(16, 4), data(16, 1, seed=1)
optimizer = Prodigy(model.parameters(), lr=1.0, weight_decay=0.01, d0=1e-3)
for _ in range(8):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    show("loss", loss)
show("d", float(optimizer.param_groups[0]["d"]))
