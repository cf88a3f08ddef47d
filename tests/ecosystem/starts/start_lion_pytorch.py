"""Steps of Lion."""

import torch
from lion_pytorch import Lion
from made import data, fill, show

model, x, y = fill(torch.nn.Linear(4, 1)), data(16, 4), data(16, 1, seed=1)
optimizer = Lion(model.parameters(), lr=1e-2, weight_decay=1e-2)
for _ in range(8):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    show("loss", loss)
