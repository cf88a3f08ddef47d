"""Stochastic equations along a given path, with gradients."""

import torch
import torchsde
from made import data, fill, show


class Path(torchsde.BaseBrownian):
    """A smooth path in place of a random one, so that both libraries follow the same."""

    levy_area_approximation = "none"
    shape, dtype, device = torch.Size([4, 2]), torch.float32, torch.device("cpu")
    phases = data(4, 2, seed=5)

    def at(self, t):
        return torch.sin(7 * torch.as_tensor(t) + self.phases)

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        return self.at(ta) if tb is None else self.at(tb) - self.at(ta)

    def __repr__(self):
        return "Path()"


class Equation(torch.nn.Module):
    noise_type = "diagonal"

    def __init__(self, sde_type):
        super().__init__()
        self.sde_type = sde_type
        self.drift, self.diffusion = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def f(self, t, y):
        return self.drift(y)

    def g(self, t, y):
        return 0.3 * self.diffusion(y).sigmoid()


for kind, method in (
    ("ito", "euler"),
    ("ito", "milstein"),
    ("stratonovich", "heun"),
    ("stratonovich", "midpoint"),
):
    equation, y0 = fill(Equation(kind)), data(4, 2).requires_grad_()
    states = torchsde.sdeint(equation, y0, torch.linspace(0, 1, 5), bm=Path(), method=method, dt=0.05)
    show(method, states)
    states[-1].pow(2).sum().backward()
    show("gradient", [y0.grad, equation.drift.weight.grad])
show("random", list(torchsde.sdeint(equation, y0, torch.linspace(0, 1, 3), dt=0.5).shape))
