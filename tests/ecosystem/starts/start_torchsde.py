"""Stochastic equations over a fixed Brownian path."""

import torch
import torchsde
from made import data, fill


class Equation(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.drift, self.diffusion = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def f(self, t, y):
        return self.drift(y)

    def g(self, t, y):
        return 0.3 * self.diffusion(y).sigmoid()


equation, y0, t = fill(Equation()), data(4, 2).requires_grad_(), torch.linspace(0, 1, 5)
path = torchsde.BrownianPath(t0=0.0, w0=torch.zeros(4, 2))
for k in range(41):
    at = k / 40
    path._tree[at] = 0.3 * data(4, 2, seed=k) if k else torch.zeros(4, 2)
    path._times.add(at) if hasattr(path, "_times") else None
