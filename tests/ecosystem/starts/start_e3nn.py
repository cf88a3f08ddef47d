"""Spherical harmonics, tensor products and an equivariant layer."""

import torch
from e3nn import o3
from made import data, fill, show

x = data(6, 3)
show("harmonics", o3.spherical_harmonics([0, 1, 2], x, normalize=True, normalization="component"))
product = fill(o3.FullyConnectedTensorProduct("2x0e + 1x1o", "1x0e + 1x1o", "2x0e + 1x1o + 1x2e"))
out = product(data(6, 5), data(6, 4, seed=1))
show("product", out)
linear = fill(o3.Linear("2x0e + 1x1o", "3x0e + 2x1o"))
show("linear", linear(data(6, 5)))
rotation = (
    o3.rand_matrix(generator=torch.Generator().manual_seed(0)) if False else o3.matrix_x(torch.tensor(0.3))
)
show("wigner", o3.Irreps("1x1o + 1x2e").D_from_matrix(rotation))
out.sum().backward()
show("gradient", product.weight.grad)
