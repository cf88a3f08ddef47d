"""A Gaussian process and the expected improvement of candidates."""

import torch
from botorch.acquisition import ExpectedImprovement, UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from made import show, uniform

x = uniform(8, 2).double()
y = torch.sin(6 * x).sum(1, keepdim=True)
model = SingleTaskGP(x, y)
model.eval()
points = uniform(5, 1, 2, seed=1).double()
show("mean", model.posterior(points).mean)
show("variance", model.posterior(points).variance)
improvement = ExpectedImprovement(model, best_f=y.max())
show("improvement", improvement(points))
best, value = optimize_acqf(
    UpperConfidenceBound(model, beta=0.1), bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(), q=1, num_restarts=1,
    batch_initial_conditions=points[:1], options={"maxiter": 20},
)  # fmt: skip
show("best", best)
show("value", value)
