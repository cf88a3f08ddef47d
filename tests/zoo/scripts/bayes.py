"""Uncertainty: Bayes by backprop, Hamiltonian Monte Carlo, mixtures, many distributions with their moments and divergences."""

import math

import numpy as np
import torch
import torch.distributions as D
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import constraints
from torch.distributions import transforms as T
from torch.distributions.kl import kl_divergence, register_kl
from torch.distributions.utils import logits_to_probs, probs_to_logits

rng = np.random.RandomState(31)
torch.set_printoptions(precision=3, sci_mode=False)
f32 = lambda *s: torch.from_numpy(rng.randn(*s).astype("f"))  # noqa: E731


class BayesianLinear(nn.Module):
    def __init__(self, n_in, n_out, prior_std=1.0):
        super().__init__()
        self.mu, self.rho = (
            nn.Parameter(f32(n_out, n_in) * 0.3),
            nn.Parameter(torch.full((n_out, n_in), -3.0)),
        )
        self.prior = D.Independent(D.Normal(torch.zeros(n_out, n_in), prior_std), 2)

    @property
    def posterior(self):
        return D.Independent(D.Normal(self.mu, F.softplus(self.rho)), 2)

    def forward(self, x, eps):
        q = self.posterior
        self.kl = kl_divergence(q, self.prior)
        return x @ (q.mean + eps * q.base_dist.scale).T


layers = [BayesianLinear(1, 12), BayesianLinear(12, 1)]
net = nn.ModuleList(layers)
x = torch.linspace(-2, 2, 24)[:, None]
y = torch.sin(2 * x) + 0.1 * f32(24, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
for step in range(40):
    out = layers[1](torch.tanh(layers[0](x, f32(12, 1))), f32(1, 12))
    nll = -D.Normal(out, 0.3).log_prob(y).sum()
    kl = sum(layer.kl for layer in layers)
    loss = nll + kl / 10
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step < 3:
        print(f"step {step} elbo {-loss.item():.2f} kl {kl.item():.3f}")
print("better", nll.item() < 120)

weights = torch.tensor([0.3, 0.7])
mixture = D.MixtureSameFamily(
    D.Categorical(weights), D.Normal(torch.tensor([-1.0, 2.0]), torch.tensor([0.5, 1.0]))
)
print(
    mixture.log_prob(torch.tensor([-1.0, 0.5, 2.0])),
    mixture.mean,
    mixture.variance,
    mixture.cdf(torch.tensor(0.5)),
)


def hmc(log_prob, q, steps=60, eps=0.15, length=10):
    kept, accepted = [], 0
    for _ in range(steps):
        start, p = q, f32(*q.shape)
        momentum = p
        for k in range(length):
            grad = torch.func.grad(lambda v: log_prob(v).sum())(q)
            p = p + eps / 2 * grad
            q = q + eps * p
            p = p + eps / 2 * torch.func.grad(lambda v: log_prob(v).sum())(q)
        ratio = log_prob(q) - p.square().sum() / 2 - log_prob(start) + momentum.square().sum() / 2
        if math.log(rng.rand()) < ratio.item():
            accepted += 1
        else:
            q = start
        kept.append(q)
    return torch.stack(kept), accepted / steps


chain, rate = hmc(
    lambda v: D.MultivariateNormal(
        torch.tensor([1.0, -1.0]), torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    ).log_prob(v),
    torch.zeros(2),
)
print("accepted", rate > 0.8, tuple(chain.shape), torch.cov(chain.T)[0, 1] > 0)

at = torch.tensor([0.2, 0.7])
for d, v in (
    (D.Beta(torch.tensor([2.0, 0.5]), 1.5), at),
    (D.Gamma(torch.tensor([2.0, 0.5]), 1.5), at),
    (D.InverseGamma(torch.tensor([3.0, 2.5]), 1.5), at),
    (D.StudentT(torch.tensor([3.0, 5.0])), at),
    (D.Laplace(at, 2.0), at + 1),
    (D.Gumbel(at, 2.0), at + 1),
    (D.Cauchy(at, 1.0), at + 1),
    (D.HalfNormal(at), at + 1),
    (D.LogNormal(at, 0.5), at + 1),
    (D.Weibull(at + 1, 1.5), at),
    (D.Pareto(torch.tensor(0.1), torch.tensor(3.0)), at),
    (D.Kumaraswamy(torch.tensor(2.0), torch.tensor(3.0)), at),
    (D.VonMises(at, 2.0), at),
    (D.Uniform(torch.zeros(2), 3 * torch.ones(2)), at),
    (D.Poisson(at * 5), torch.tensor([1.0, 4.0])),
    (D.Binomial(5, at), torch.tensor([1.0, 4.0])),
    (D.NegativeBinomial(torch.tensor(3.0), at), torch.tensor([1.0, 4.0])),
    (D.Geometric(at), torch.tensor([1.0, 4.0])),
    (D.RelaxedBernoulli(torch.tensor(0.5), at), at),
    (D.Dirichlet(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([0.2, 0.3, 0.5])),
    (D.Multinomial(4, torch.tensor([0.2, 0.3, 0.5])), torch.tensor([1.0, 1.0, 2.0])),
    (D.OneHotCategorical(torch.tensor([0.2, 0.3, 0.5])), torch.tensor([0.0, 1.0, 0.0])),
    (D.LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)), at),
    (D.LKJCholesky(2, 1.5), torch.tensor([[1.0, 0.0], [0.6, 0.8]])),
):
    line = [type(d).__name__, d.log_prob(v)]
    try:
        line.append(d.mean)
        line.append(d.variance)
    except NotImplementedError:
        line.append("no moments")
    try:
        line.append(d.entropy())
    except NotImplementedError:
        line.append("no entropy")
    print(*line)
print(
    d.support,
    D.Beta(1.0, 2.0).support,
    D.Categorical(weights).support,
    D.Gamma(1.0, 1.0).arg_constraints["rate"],
)

for p, q in (
    (D.Normal(0.0, 1.0), D.Normal(1.0, 2.0)),
    (D.Gamma(torch.tensor(2.0), torch.tensor(1.0)), D.Gamma(torch.tensor(3.0), torch.tensor(2.0))),
    (D.Beta(torch.tensor(2.0), torch.tensor(1.0)), D.Beta(torch.tensor(1.0), torch.tensor(2.0))),
    (D.Dirichlet(torch.ones(3)), D.Dirichlet(torch.tensor([1.0, 2.0, 3.0]))),
    (D.Categorical(weights), D.Categorical(torch.tensor([0.5, 0.5]))),
    (D.Bernoulli(torch.tensor(0.3)), D.Bernoulli(torch.tensor(0.6))),
    (D.Laplace(0.0, 1.0), D.Normal(0.0, 1.0)),
    (D.Uniform(0.0, 1.0), D.Normal(0.0, 1.0)),
):
    print(
        type(p).__name__,
        f"{kl_divergence(p, q).item():.5f}",
        f"{kl_divergence(q, p).item():.5f}" if type(p) is type(q) else "",
    )


class Tilted(D.Normal):
    pass


@register_kl(Tilted, Tilted)
def _(p, q):
    return torch.zeros(()) - 1


print(kl_divergence(Tilted(0.0, 1.0), Tilted(1.0, 1.0)), kl_divergence(Tilted(0.0, 1.0), D.Normal(1.0, 1.0)))
try:
    kl_divergence(D.Cauchy(0.0, 1.0), D.Gumbel(0.0, 1.0))
except NotImplementedError as error:
    print("refused", str(error)[:50])

x = torch.tensor([[0.3, -0.4, 0.9], [0.1, 0.2, -0.5]])
for t in (
    T.ExpTransform(),
    T.SigmoidTransform(),
    T.TanhTransform(),
    T.SoftplusTransform(),
    T.AffineTransform(1.0, -2.0),
    T.PowerTransform(torch.tensor(2.0)),
    T.StickBreakingTransform(),
    T.CumulativeDistributionTransform(D.Normal(0.0, 1.0)),
    T.ComposeTransform([T.AffineTransform(0.0, 2.0), T.TanhTransform()]),
):
    value = t(x.abs() if isinstance(t, T.PowerTransform) else x)
    back = t.inv(value)
    print(
        type(t).__name__,
        value[0],
        t.log_abs_det_jacobian(back, value).sum(),
        torch.allclose(t(back), value, atol=1e-5),
        t.bijective,
    )
print(
    T.StackTransform([T.ExpTransform(), T.identity_transform], dim=0)(x)[0],
    T.IndependentTransform(T.ExpTransform(), 1).log_abs_det_jacobian(x, x.exp()),
)
print(
    D.biject_to(constraints.simplex)(x).sum(-1).allclose(torch.ones(2)),
    D.transform_to(constraints.interval(-1.0, 2.0))(x)[0],
    constraints.positive_definite.check(torch.eye(2)),
)
print(logits_to_probs(x)[0], probs_to_logits(torch.tensor([0.2, 0.8]), is_binary=True))
log_normal = D.TransformedDistribution(D.Normal(0.5, 0.7), [T.ExpTransform()])
print(log_normal.log_prob(at), D.LogNormal(0.5, 0.7).log_prob(at), log_normal.cdf(at), log_normal.icdf(at))
print(
    D.Normal(torch.zeros(2), 1.0).expand((3, 2)).batch_shape,
    D.Normal(at, 1.0),
    D.Independent(D.Normal(at, 1.0), 1),
)
g = torch.tensor([2.0, 3.0], requires_grad=True)
draws = D.Gamma(g, 1.0).rsample((2000,))
draws.mean(0).sum().backward()
print(
    "pathwise",
    bool((g.grad - 1).abs().max() < 0.2),
    D.Categorical(weights).sample((4,)).shape,
    D.Wishart(torch.tensor(3.0), torch.eye(2)).mean,
)
