"""Averages of parameters."""

import torch
from made import data, fill, show
from torch_ema import ExponentialMovingAverage

model = fill(torch.nn.Linear(4, 2))
average = ExponentialMovingAverage(model.parameters(), decay=0.9)
for k in range(4):
    with torch.no_grad():
        model.weight.add_(data(2, 4, seed=k))
    average.update()
with average.average_parameters():
    show("average", model(data(3, 4)))
show("now", model(data(3, 4)))
show("state", sorted(average.state_dict()))
