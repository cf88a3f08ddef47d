"""Density estimators of simulation-based inference."""

import torch
from made import data, fill, show
from sbi.neural_nets.net_builders import build_maf, build_mdn
from sbi.utils import BoxUniform

theta, x = data(40, 2), data(40, 3, seed=1)
prior = BoxUniform(-3 * torch.ones(2), 3 * torch.ones(2))
show("prior", prior.log_prob(theta))
for build in (build_maf, build_mdn):
    estimator = fill(build(theta, x, hidden_features=8))
    loss = estimator.loss(theta, condition=x)
    loss.mean().backward()
    show(build.__name__, loss)
    show("gradient", next(p.grad for p in estimator.parameters() if p.grad is not None))
