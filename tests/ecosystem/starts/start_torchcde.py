"""A differential equation driven by data."""

import torch
import torchcde
from made import data, fill, show

x = torch.cat([torch.linspace(0, 1, 6)[None, :, None].expand(3, 6, 1), data(3, 6, 2)], -1)
coefficients = torchcde.hermite_cubic_coefficients_with_backward_differences(x)
show("coefficients", coefficients)
path = torchcde.CubicSpline(coefficients)
show("evaluated", path.evaluate(torch.tensor(2.5)))


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 12)

    def forward(self, t, z):
        return self.linear(z).tanh().view(-1, 4, 3)


field = fill(Field())
z = torchcde.cdeint(
    path, field, data(3, 4, seed=1), path.interval, method="rk4", options={"step_size": 0.5}, adjoint=False
)
show("states", z)
z[:, -1].pow(2).mean().backward()
show("gradient", field.linear.weight.grad)
show("signature", torchcde.natural_cubic_coeffs(x))
