"""Descent by several losses at once."""

import torch
from made import data, fill, show
from torchjd.aggregation import MGDA, AlignedMTL
from torchjd.autojac import backward

network = fill(torch.nn.Linear(4, 2))
out = network(data(6, 4))
losses = [out[:, 0].pow(2).mean(), (out[:, 1] - 1).pow(2).mean()]
show("aggregated", AlignedMTL()(torch.tensor([[-4.0, 1.0, 1.0], [6.0, 1.0, 1.0]])))
show("mgda", MGDA()(torch.tensor([[-4.0, 1.0, 1.0], [6.0, 1.0, 1.0]])))
try:
    backward(losses, MGDA())
except TypeError:
    backward(losses)
p = network.weight
show("gradient", p.grad if p.grad is not None else p.jac)
