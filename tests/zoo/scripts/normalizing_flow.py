"""A flow of coupling layers, densities of distributions and of transformed ones, a mixture, variational inference."""

import math

import numpy as np
import torch
import torch.distributions as D
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
torch.set_default_dtype(torch.float64)


class Coupling(nn.Module):
    def __init__(self, mask, hidden=16):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 2), nn.Tanh())
        self.t = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(), nn.Linear(hidden, 2))

    def forward(self, x):
        kept = x * self.mask
        s, t = self.s(kept) * (1 - self.mask), self.t(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)

    def inverse(self, y):
        kept = y * self.mask
        s, t = self.s(kept) * (1 - self.mask), self.t(kept) * (1 - self.mask)
        return kept + (1 - self.mask) * (y - t) * (-s).exp()


class RealNVP(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.prior = D.MultivariateNormal(torch.zeros(2), torch.eye(2))
        self.layers = nn.ModuleList([Coupling(torch.tensor([k % 2, 1.0 - k % 2])) for k in range(n)])

    def log_prob(self, x):
        total = x.new_zeros(x.shape[0])
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return self.prior.log_prob(x) + total


flow = RealNVP(4)
for p in flow.parameters():
    p.data = torch.from_numpy(rng.normal(0, 0.2, tuple(p.shape)))
angle = rng.uniform(0, math.pi, 200)
moon = np.stack([np.cos(angle), np.sin(angle)], 1) + rng.normal(0, 0.08, (200, 2))
x = torch.from_numpy(moon)
optimizer = torch.optim.Adamax(flow.parameters(), lr=0.02)
for step in range(61):
    loss = -flow.log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, f"{loss.item():.5f}")
z = x
for layer in flow.layers:
    z, _ = layer(z)
back = z
for layer in reversed(flow.layers):
    back = layer.inverse(back)
print("inverts", torch.allclose(back, x), list(flow.state_dict())[:3])

base = D.Normal(torch.zeros(2), torch.ones(2))
log_normal = D.TransformedDistribution(base, [D.AffineTransform(0.5, 2.0), D.ExpTransform()])
print(log_normal.log_prob(torch.tensor([1.0, 3.0])), D.LogNormal(0.5, 2.0).log_prob(torch.tensor([1.0, 3.0])))
logistic = D.TransformedDistribution(D.Uniform(0, 1), [D.SigmoidTransform().inv, D.AffineTransform(1.0, 2.0)])
print(logistic.log_prob(torch.tensor(0.3)), log_normal.event_shape, log_normal.batch_shape)
mix = D.Categorical(torch.tensor([0.3, 0.7]))
components = D.Independent(D.Normal(torch.tensor([[0.0, 0.0], [3.0, 1.0]]), torch.ones(2, 2)), 1)
mixture = D.MixtureSameFamily(mix, components)
print(mixture.log_prob(torch.tensor([[1.0, 1.0], [3.0, 0.0]])), mixture.mean, mixture.variance, mixture)
print(
    D.kl_divergence(D.Beta(2.0, 3.0), D.Beta(1.0, 1.0)),
    D.kl.kl_divergence(D.Gamma(2.0, 1.0), D.Gamma(3.0, 2.0)),
)
points = torch.tensor([0.2, 0.5, 0.9])
for distribution in (
    D.Beta(2.0, 5.0),
    D.Gamma(2.0, 0.5),
    D.StudentT(3.0),
    D.Laplace(0.0, 1.0),
    D.Gumbel(0.0, 2.0),
    D.Weibull(1.0, 1.5),
    D.HalfNormal(1.0),
    D.VonMises(0.0, 4.0),
    D.Kumaraswamy(2.0, 2.0),
    D.Cauchy(0.0, 1.0),
):
    print(type(distribution).__name__, distribution.log_prob(points), distribution.mean, distribution.support)
counts = torch.tensor([0.0, 1.0, 4.0])
for distribution in (D.Poisson(2.0), D.Geometric(0.3), D.Binomial(5, 0.4), D.NegativeBinomial(3.0, 0.5)):
    print(type(distribution).__name__, distribution.log_prob(counts), distribution.variance)
print(D.Dirichlet(torch.tensor([1.0, 2.0, 3.0])), D.Dirichlet(torch.ones(3)).entropy())
print(
    D.Multinomial(4, torch.tensor([0.2, 0.8])).log_prob(torch.tensor([1.0, 3.0])),
    D.OneHotCategorical(torch.ones(3)).mode,
)
covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]])
normal = D.MultivariateNormal(torch.zeros(2), covariance)
print(
    normal.precision_matrix,
    normal.entropy(),
    normal.scale_tril,
    D.LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)),
)
for bad in (
    lambda: D.Bernoulli(2.0),
    lambda: D.Normal(0.0, 1.0).log_prob("x"),
    lambda: D.Beta(1.0, 1.0).log_prob(torch.tensor(2.0)),
):
    try:
        bad()
    except (ValueError, TypeError) as error:
        print(type(error).__name__)

mu, rho = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
observed = torch.tensor([2.1, 1.9, 2.4, 2.2])
optimizer = torch.optim.ASGD([mu, rho], lr=0.05)
for step in range(200):
    q = D.Normal(mu, nn.functional.softplus(rho))
    weight = q.rsample((8,))
    log_likelihood = D.Normal(weight, 0.5).log_prob(observed).sum(-1).mean()
    loss = D.kl_divergence(q, D.Normal(0.0, 10.0)).sum() - log_likelihood
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("near", abs(mu.item() - 2.15) < 0.3, nn.functional.softplus(rho).item() < 0.5)
relaxed = D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=torch.zeros(3)).rsample()
print(relaxed.shape, torch.isclose(relaxed.sum(), torch.tensor(1.0)), D.constraints.simplex.check(relaxed))
