"""Numerical integrals."""

import torch
from made import show
from torchquad import Boole, GaussLegendre, Simpson, Trapezoid, set_up_backend

set_up_backend("torch", data_type="float64", torch_enable_cuda=False)
for rule in (Trapezoid(), Simpson(), Boole(), GaussLegendre()):
    value = rule.integrate(
        lambda x: torch.sin(x[:, 0]) * torch.exp(x[:, 1]),
        dim=2,
        N=625,
        integration_domain=[[0, 1], [-1, 1]],
        backend="torch",
    )
    show(type(rule).__name__, value)
