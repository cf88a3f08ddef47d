"""A Fourier neural operator."""

import torch
from made import data, show
from neuralop.losses import H1Loss, LpLoss
from neuralop.models import FNO

model = FNO(
    n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2, projection_channel_ratio=2
)
with torch.no_grad():
    for k, p in enumerate(model.parameters()):
        p.copy_(
            0.2
            * (
                torch.complex(data(*p.shape, seed=k), data(*p.shape, seed=k + 99))
                if p.is_complex()
                else data(*p.shape, seed=k)
            )
        )
x, y = data(2, 1, 8, 8), data(2, 1, 8, 8, seed=1)
out = model(x)
show("out", out)
loss = LpLoss(d=2, p=2)(out, y)
show("losses", [loss, H1Loss(d=2)(out, y)])
loss.backward()
show("gradient", next(model.parameters()).grad)
