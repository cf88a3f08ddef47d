"""An average of a model's weights."""

import torch
from ema_pytorch import EMA
from made import data, fill, show

model = fill(torch.nn.Linear(4, 2))
ema = EMA(model, beta=0.9, update_after_step=1, update_every=1)
for k in range(5):
    with torch.no_grad():
        model.weight.add_(data(2, 4, seed=k))
    ema.update()
show("average", ema(data(3, 4)))
show("names", sorted(ema.state_dict()))
