"""Steps of MADGRAD."""

import torch
from made import data, fill, show
from madgrad import MADGRAD, MirrorMADGRAD

for kind in (MADGRAD, MirrorMADGRAD):
    model, x, y = fill(torch.nn.Linear(4, 1)), data(16, 4), data(16, 1, seed=1)
    optimizer = kind(model.parameters(), lr=1e-2, momentum=0.9)
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        show(kind.__name__, loss)
