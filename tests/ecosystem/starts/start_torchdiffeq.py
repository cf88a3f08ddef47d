"""Differential equations, with gradients by the adjoint method."""

import torch
from made import data, fill, show
from torchdiffeq import odeint, odeint_adjoint, odeint_event

field = fill(torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)))


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = field

    def forward(self, t, y):
        return self.net(y)


y0, t = data(3, 2).requires_grad_(), torch.linspace(0, 1, 5)
for method in ("dopri5", "rk4", "bosh3", "implicit_adams"):
    show(method, odeint(Field(), y0, t, method=method))
out = odeint_adjoint(Field(), y0, t, rtol=1e-6, atol=1e-6)
out[-1].pow(2).sum().backward()
show("gradient", y0.grad)
show("weights", field[0].weight.grad)
time, _ = odeint_event(
    lambda t, y: -torch.ones_like(y),
    torch.tensor([1.0]),
    torch.tensor(0.0),
    event_fn=lambda t, y: y[0] - 0.25,
)
show("event", time)
