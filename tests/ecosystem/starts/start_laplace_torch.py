"""A Laplace approximation of a network's posterior."""

import sys
from unittest import mock

import torch

# It imports asdl, of which there is no package, for other ways to compute curvature than the one used here.
for name in ("", ".fisher", ".grad_maker", ".gradient", ".hessian", ".matrices"):
    sys.modules["asdl" + name] = mock.MagicMock()
from laplace import Laplace  # noqa: E402
from made import data, fill, show  # noqa: E402

model = fill(torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)))
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(data(16, 2), data(16, 1, seed=1)), batch_size=8
)
for structure in ("full", "diag"):
    posterior = Laplace(model, "regression", subset_of_weights="all", hessian_structure=structure)
    posterior.fit(loader)
    mean, variance = posterior(data(3, 2, seed=2))
    show(f"{structure} mean", mean)
    show(f"{structure} variance", variance)
    show(f"{structure} evidence", posterior.log_marginal_likelihood())
