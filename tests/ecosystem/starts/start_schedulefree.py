"""Steps without a schedule."""

import torch
from made import data, fill, show
from schedulefree import AdamWScheduleFree, SGDScheduleFree

for kind in (AdamWScheduleFree, SGDScheduleFree):
    model, x, y = fill(torch.nn.Linear(4, 1)), data(16, 4), data(16, 1, seed=1)
    optimizer = kind(model.parameters(), lr=0.05, warmup_steps=2)
    optimizer.train()
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    show(kind.__name__, loss)
    optimizer.eval()
    show("average", model(x))
