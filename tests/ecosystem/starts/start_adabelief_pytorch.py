"""Steps of AdaBelief."""

import torch
from adabelief_pytorch import AdaBelief
from made import data, fill, show

model, x, y = fill(torch.nn.Linear(4, 1)), data(16, 4), data(16, 1, seed=1)
optimizer = AdaBelief(
    model.parameters(), lr=1e-2, eps=1e-12, weight_decouple=True, rectify=True, print_change_log=False
)
for _ in range(8):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    show("loss", loss)
