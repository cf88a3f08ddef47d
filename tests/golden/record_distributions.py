"""Records what PyTorch's distributions, divergences, transforms and constraints give.

    .peer/bin/python tests/golden/record_distributions.py

``test_distributions.py`` runs `answers` of this file with Facula and compares with ``distributions.json``.
"""

import json
import math
from pathlib import Path


def plain(x):
    """A tensor as numbers with 12 digits, a shape as a list."""
    if hasattr(x, "tolist"):
        x = x.tolist()
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, float):
        return x if not math.isfinite(x) else float(f"{x:.12g}")
    return x


def attempt(f):
    """What a call gives; the name of the exception if it raises one."""
    try:
        return plain(f())
    except Exception as e:
        return f"raises {type(e).__name__}"


def cases(torch):
    """Constructions by name: function, parameters (which get gradients), values (None: not compared)."""
    D = torch.distributions

    def t(*x):
        return torch.tensor(x if len(x) > 1 else x[0], dtype=torch.float64)

    unit, half = t(0.1, 0.5, 0.95), t(0.0, 0.2, 1.0)
    whole, positive, real = t(0.0, 1.0, 3.0), t(0.3, 1.0, 4.5), t(-1.7, 0.2, 3.0)
    a, b, s = t(0.4, 1.0, 7.5), t(2.0, 0.7, 1.5), t(0.5, 1.0, 3.0)
    p, logits = t(0.1, 0.5, 0.9), t(-2.0, 0.0, 1.5)
    weights, scores = t([1.0, 2.0, 0.5], [1.0, 1.0, 6.0]), t([0.3, -1.0, 0.2], [2.0, 0.0, 0.0])
    corner = t([0.0, 1.0, 0.0], [1.0, 0.0, 0.0])
    simplex = t([0.2, 0.5, 0.3], [0.1, 0.1, 0.8])
    cov = t([2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.7])
    lower = t([1.5, 0.0, 0.0], [0.2, 0.8, 0.0], [-0.5, 0.3, 1.1])
    vectors = t([0.0, 1.0, -1.0], [0.5, 0.5, 2.0])
    factor = t([1.0, 0.0], [0.5, -1.0], [0.2, 0.3])
    corr = t([1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8])
    definite = t([2.0, 0.3], [0.3, 1.0])
    made = {
        "Bernoulli": (lambda p: D.Bernoulli(p), [p], half.round()),
        "Bernoulli logits": (lambda x: D.Bernoulli(logits=x), [logits], half.round()),
        "Bernoulli edges": (lambda p: D.Bernoulli(p), [t(0.0, 1.0)], None),
        "Beta": (D.Beta, [a, b], unit),
        "Binomial": (lambda p: D.Binomial(5, p), [p], whole),
        "Binomial logits": (lambda n, x: D.Binomial(n, logits=x), [t(3.0, 4.0, 9.0), logits], whole),
        "Categorical": (D.Categorical, [weights], t(0.0, 2.0)),
        "Categorical logits": (lambda x: D.Categorical(logits=x), [scores], t([[0.0], [1.0]])),
        "Cauchy": (D.Cauchy, [real, s], real),
        "Chi2": (D.Chi2, [positive], positive),
        "ContinuousBernoulli": (D.ContinuousBernoulli, [t(0.1, 0.5, 0.9)], unit),
        "ContinuousBernoulli logits": (lambda x: D.ContinuousBernoulli(logits=x), [t(-3.0, 0.7, 6.0)], unit),
        "Dirichlet": (D.Dirichlet, [t([0.5, 1.5, 3.0], [2.0, 2.0, 0.3])], simplex),
        "Exponential": (D.Exponential, [s], positive),
        "FisherSnedecor": (D.FisherSnedecor, [t(1.0, 3.0, 8.0), t(2.0, 4.5, 9.0)], positive),
        "Gamma": (D.Gamma, [a, b], positive),
        "GeneralizedPareto": (
            D.GeneralizedPareto,
            [t(0.0, 0.1, 0.2, 0.0), t(1.0, 2.0, 0.5, 1.5), t(-0.4, 0.0, 0.3, 1.2)],
            t(0.9, 1.0, 4.0, 2.0),
        ),
        "Geometric": (D.Geometric, [p], whole),
        "Geometric logits": (lambda x: D.Geometric(logits=x), [logits], whole),
        "Gumbel": (D.Gumbel, [real, s], real),
        "HalfCauchy": (D.HalfCauchy, [s], positive),
        "HalfNormal": (D.HalfNormal, [s], positive),
        "Independent": (lambda m, s: D.Independent(D.Normal(m, s), 1), [vectors, s], vectors * 2),
        "InverseGamma": (D.InverseGamma, [a, b], positive),
        "Kumaraswamy": (D.Kumaraswamy, [a, b], unit),
        "LKJCholesky": (lambda c: D.LKJCholesky(3, c), [t(0.5, 2.0)], corr),
        "Laplace": (D.Laplace, [real, s], real + 0.1),
        "LogNormal": (D.LogNormal, [real, s], positive),
        "LogisticNormal": (D.LogisticNormal, [t(0.1, -0.5), t(0.5, 1.2)], simplex[0]),
        "LowRankMultivariateNormal": (D.LowRankMultivariateNormal, [vectors, factor, s], vectors * 2),
        "MixtureSameFamily": (
            lambda w, m: D.MixtureSameFamily(D.Categorical(w), D.Normal(m, 1.5)),
            [weights, vectors],
            t(0.3, -2.0),
        ),
        "MixtureSameFamily vectors": (
            lambda w, m: D.MixtureSameFamily(
                D.Categorical(w), D.Independent(D.Normal(m, torch.ones_like(m)), 1)
            ),
            [weights[0], cov],
            vectors,
        ),
        "Multinomial": (lambda w: D.Multinomial(4, w), [weights], t([1.0, 2.0, 1.0], [0.0, 1.0, 3.0])),
        "Multinomial logits": (lambda w: D.Multinomial(4, logits=w), [scores], t([4.0, 0, 0], [0, 1.0, 3.0])),
        "MultivariateNormal": (D.MultivariateNormal, [vectors, cov], vectors * 2),
        "MultivariateNormal precision": (
            lambda m, c: D.MultivariateNormal(m, precision_matrix=c),
            [vectors[0], cov],
            vectors,
        ),
        "MultivariateNormal factor": (
            lambda m, c: D.MultivariateNormal(m, scale_tril=c.tril()),
            [vectors, torch.stack([lower, 2 * lower])],
            vectors[0],
        ),
        "NegativeBinomial": (lambda n, p: D.NegativeBinomial(n, p), [t(0.0, 3.0, 2.5), p], whole),
        "NegativeBinomial logits": (lambda n, x: D.NegativeBinomial(n, logits=x), [b, logits], whole),
        "Normal": (D.Normal, [real, s], real * 2),
        "OneHotCategorical": (D.OneHotCategorical, [weights], corner),
        "OneHotCategoricalStraightThrough": (D.OneHotCategoricalStraightThrough, [weights], corner),
        "Pareto": (D.Pareto, [t(0.2, 0.5, 1.0), t(0.5, 1.5, 3.0)], t(0.3, 1.0, 4.5)),
        "Poisson": (D.Poisson, [s], whole),
        "RelaxedBernoulli": (lambda k, p: D.RelaxedBernoulli(k, p), [t(0.7), p], unit),
        "LogitRelaxedBernoulli": (
            lambda k, p: D.relaxed_bernoulli.LogitRelaxedBernoulli(k, p),
            [t(0.7), p],
            real,
        ),
        "RelaxedOneHotCategorical": (
            lambda k, w: D.RelaxedOneHotCategorical(k, w),
            [t(0.7), weights],
            simplex,
        ),
        "ExpRelaxedCategorical": (
            lambda k, w: D.relaxed_categorical.ExpRelaxedCategorical(k, logits=w),
            [t(0.7), scores],
            simplex.log(),
        ),
        "StudentT": (D.StudentT, [t(0.8, 1.5, 5.0), real, s], real * 2),
        "Uniform": (D.Uniform, [t(-2.0, 0.0, 1.0), t(-1.0, 1.0, 5.0)], t(-1.7, 0.2, 3.0)),
        "VonMises": (D.VonMises, [t(0.0, 1.0, -2.0), t(0.05, 2.0, 60.0)], real),
        "Weibull": (D.Weibull, [s, t(0.7, 1.0, 2.5)], positive),
        "Wishart": (lambda d, c: D.Wishart(d, c), [t(3.5, 5.0), definite], definite + 0.1),
        "Wishart factor": (lambda d, c: D.Wishart(d, scale_tril=c.tril()), [t(3.5), lower[:2, :2]], definite),
        "Transformed": (
            lambda m, s: D.TransformedDistribution(
                D.Normal(m, s),
                [D.AffineTransform(0.5, 2.0), D.SigmoidTransform(), D.AffineTransform(1.0, -1.0)],
            ),
            [real, s],
            unit,
        ),
        "Transformed vectors": (
            lambda m: D.TransformedDistribution(D.Normal(m, 1.0), [D.StickBreakingTransform()]),
            [vectors[:, :2]],
            simplex,
        ),
    }
    return made


def answer(torch, make, parameters, value):
    parameters = [x.clone().requires_grad_() for x in parameters]
    d = make(*parameters)
    out = {
        "batch": plain(d.batch_shape),
        "event": plain(d.event_shape),
        "rsample": d.has_rsample,
        "enumerates": d.has_enumerate_support,
        "support": attempt(lambda: str(d.support)),
        "repr": repr(d),
    }
    for name in ("mean", "mode", "variance", "stddev"):
        out[name] = attempt(lambda: getattr(d, name))
    for name in ("entropy", "perplexity", "enumerate_support"):
        out[name] = attempt(getattr(d, name))
    u = torch.full([1] * (len(d.batch_shape) + 1), 0.3, dtype=torch.float64)
    out["icdf"] = attempt(lambda: d.icdf(u))
    if value is not None:
        value = value.clone().requires_grad_()
        out["log_prob"] = attempt(lambda: d.log_prob(value))
        out["cdf"] = attempt(lambda: d.cdf(value))
        out["expanded"] = attempt(lambda: d.expand([2, *d.batch_shape]).log_prob(value))
        wanted = [*parameters, value]
        out["gradients"] = attempt(
            lambda: torch.autograd.grad(d.log_prob(value).sum(), wanted, allow_unused=True)
        )
    return out


def members(torch):
    """One distribution of each class with a divergence, by name; two where a class has one of its own."""
    D = torch.distributions

    def t(*x):
        return torch.tensor(x if len(x) > 1 else x[0], dtype=torch.float64)

    cov, other = t([2.0, 0.5], [0.5, 1.0]), t([0.5, 0.1], [0.1, 1.5])
    factor = t([1.0], [0.5])
    made = {
        "Bernoulli": [D.Bernoulli(t(0.2, 0.7)), D.Bernoulli(t(0.5, 0.1)), D.Bernoulli(t(0.0, 1.0))],
        "Beta": [D.Beta(t(0.5, 3.0), t(2.0, 1.5)), D.Beta(t(1.5, 1.0), t(1.0, 4.0))],
        "Binomial": [D.Binomial(5, t(0.2, 0.7)), D.Binomial(5, t(0.5, 0.4)), D.Binomial(4, t(0.5, 0.4))],
        "Categorical": [
            D.Categorical(t([1.0, 2, 3])),
            D.Categorical(t([3.0, 2, 1])),
            D.Categorical(t([0.0, 1, 1])),
        ],
        "Cauchy": [D.Cauchy(t(0.0, 1.0), t(1.0, 2.0)), D.Cauchy(t(0.5, -1.0), t(3.0, 0.2))],
        "ContinuousBernoulli": [D.ContinuousBernoulli(t(0.2, 0.9)), D.ContinuousBernoulli(t(0.6, 0.3))],
        "Dirichlet": [D.Dirichlet(t([0.5, 2.0, 1.0])), D.Dirichlet(t([1.5, 1.0, 3.0]))],
        "Exponential": [D.Exponential(t(0.5, 2.0)), D.Exponential(t(1.5, 0.3))],
        "Gamma": [D.Gamma(t(0.5, 3.0), t(2.0, 1.5)), D.Gamma(t(1.5, 1.0), t(1.0, 4.0))],
        "Geometric": [D.Geometric(t(0.2, 0.7)), D.Geometric(t(0.5, 0.1))],
        "Gumbel": [D.Gumbel(t(0.0, 1.0), t(1.0, 2.0)), D.Gumbel(t(0.5, -1.0), t(3.0, 0.7))],
        "HalfNormal": [D.HalfNormal(t(0.5, 2.0)), D.HalfNormal(t(1.5, 0.3))],
        "Independent": [
            D.Independent(D.Normal(t(0.0, 1.0), t(1.0, 2.0)), 1),
            D.Independent(D.Normal(t(0.5, -1.0), t(3.0, 0.7)), 1),
        ],
        "Laplace": [D.Laplace(t(0.0, 1.0), t(1.0, 2.0)), D.Laplace(t(0.5, -1.0), t(3.0, 0.7))],
        "LowRankMultivariateNormal": [
            D.LowRankMultivariateNormal(t(0.0, 1.0), factor, t(1.0, 2.0)),
            D.LowRankMultivariateNormal(t([0.5, -1.0], [1.0, 1.0]), factor * 2, t(3.0, 0.7)),
        ],
        "MultivariateNormal": [
            D.MultivariateNormal(t(0.0, 1.0), cov),
            D.MultivariateNormal(t([0.5, -1.0], [1.0, 1.0]), torch.stack([other, cov])),
        ],
        "Normal": [D.Normal(t(0.0, 1.0), t(1.0, 2.0)), D.Normal(t(0.5, -1.0), t(3.0, 0.7))],
        "OneHotCategorical": [D.OneHotCategorical(t([1.0, 2, 3])), D.OneHotCategorical(t([3.0, 2, 1]))],
        "Pareto": [D.Pareto(t(1.0, 2.0), t(3.0, 2.5)), D.Pareto(t(0.5, 2.5), t(1.0, 2.0))],
        "Poisson": [D.Poisson(t(0.5, 2.0)), D.Poisson(t(1.5, 0.3))],
        "LogNormal": [D.LogNormal(t(0.0, 1.0), t(1.0, 2.0)), D.LogNormal(t(0.5, -1.0), t(3.0, 0.7))],
        "Uniform": [D.Uniform(t(0.1, 0.2), t(0.7, 0.9)), D.Uniform(t(-1.0, 0.3), t(2.0, 0.8))],
        "Chi2": [D.Chi2(t(3.0, 1.5)), D.Chi2(t(2.0, 4.0))],
        "Wishart": [D.Wishart(t(3.5), cov), D.Wishart(t(4.0), other)],
    }
    return [(f"{name} {k}", d) for name, ds in made.items() for k, d in enumerate(ds)]


def divergences(torch):
    """KL of all pairs that have one."""
    ds, out = members(torch), {}
    for n, p in ds:
        for m, q in ds:
            got = attempt(lambda: torch.distributions.kl_divergence(p, q))
            if got != "raises NotImplementedError":
                out[f"{n} || {m}"] = got
    return out


def transforms(torch):
    """Results, inverses and Jacobians of all transforms."""
    T = torch.distributions.transforms
    x = torch.tensor([[-1.5, 0.2, 0.9], [0.4, 2.0, -0.3]], dtype=torch.float64)
    square = torch.tensor([[0.5, 9.0], [-1.0, 0.2]], dtype=torch.float64)
    exponent = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    exp, affine = T.ExpTransform(), T.AffineTransform(0.5, -2.0)
    made = {
        "abs": (T.AbsTransform(), x),
        "affine": (affine, x),
        "affine event": (T.AffineTransform(exponent, exponent * 2, event_dim=1), x),
        "cat": (T.CatTransform([exp, affine], dim=-1, lengths=[1, 2]), x),
        "compose": (T.ComposeTransform([affine, exp, T.SoftplusTransform()]), x),
        "compose event": (T.ComposeTransform([affine, T.StickBreakingTransform()]), x),
        "corr cholesky": (T.CorrCholeskyTransform(), x),
        "cdf": (T.CumulativeDistributionTransform(torch.distributions.Normal(0.5, 2.0)), x),
        "exp": (exp, x),
        "inverse": (exp.inv, x.exp()),
        "independent": (T.IndependentTransform(exp, 1), x),
        "lower cholesky": (T.LowerCholeskyTransform(), square),
        "positive definite": (T.PositiveDefiniteTransform(), square * 0.5),
        "power": (T.PowerTransform(exponent), x.exp()),
        "reshape": (T.ReshapeTransform((3,), (3, 1)), x),
        "sigmoid": (T.SigmoidTransform(), x),
        "softplus": (T.SoftplusTransform(), x),
        "tanh": (T.TanhTransform(), x),
        "softmax": (T.SoftmaxTransform(), x),
        "stack": (T.StackTransform([exp, T.TanhTransform()], dim=0), x),
        "stick breaking": (T.StickBreakingTransform(), x),
    }
    out = {}
    for name, (t, x) in made.items():
        y = t(x)
        out[name] = {
            "value": plain(y),
            "inverse": plain(t.inv(y)),
            "jacobian": attempt(lambda: t.log_abs_det_jacobian(x, y)),
            "domain": str(t.domain),
            "codomain": str(t.codomain),
            "bijective": t.bijective,
            "sign": attempt(lambda: t.sign),
            "forward shape": attempt(lambda: t.forward_shape(x.shape)),
            "inverse shape": attempt(lambda: t.inverse_shape(y.shape)),
        }
    return out


def regions(torch):
    """What constraints say of values, and the transforms to them."""
    D, C = torch.distributions, torch.distributions.constraints
    inf, nan = math.inf, math.nan
    numbers = torch.tensor([-inf, -1.5, -1.0, 0.0, 0.3, 1.0, 2.0, 2.5, inf, nan], dtype=torch.float64)
    vectors = torch.tensor(
        [[0, 1, 0], [0.2, 0.5, 0.3], [1, 1, 0], [-1, 1, 1], [3, 4, 0]], dtype=torch.float64
    )
    eye = torch.eye(2, dtype=torch.float64)
    swap = eye.flip(0)
    lower = torch.tensor([[0.6, 0], [0.6, 0.8]], dtype=torch.float64)
    matrices = torch.stack([eye, swap, lower, lower.mT, eye + swap, -eye, 0 * eye, lower @ lower.mT])
    matrices[2, 0, 0] = 1
    free = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    made = {
        **{
            name: (getattr(C, name), numbers)
            for name in (
                "boolean nonnegative nonnegative_integer positive positive_integer real unit_interval".split()
            )
        },
        "greater_than": (C.greater_than(1.0), numbers),
        "greater_than_eq": (C.greater_than_eq(1.0), numbers),
        "less_than": (C.less_than(1.0), numbers),
        "interval": (C.interval(-1.0, 2.0), numbers),
        "half_open_interval": (C.half_open_interval(-1.0, 2.0), numbers),
        "integer_interval": (C.integer_interval(-1, 2), numbers),
        "mixture": (C.MixtureSameFamilyConstraint(C.positive), vectors),
        **{name: (getattr(C, name), vectors) for name in ("one_hot", "real_vector", "simplex")},
        "multinomial": (C.multinomial(2), vectors),
        "independent": (C.independent(C.positive, 1), vectors),
        "cat": (C.cat([C.positive, C.boolean], -1, [1, 2]), vectors),
        "stack": (C.stack([C.positive, C.boolean, C.real], -1), vectors),
        **{
            name: (getattr(C, name), matrices)
            for name in (
                "corr_cholesky lower_cholesky lower_triangular positive_definite positive_semidefinite "
                "square symmetric"
            ).split()
        },
    }
    out = {}
    for name, (c, value) in made.items():
        out[name] = {
            "check": plain(c.check(value)),
            "repr": repr(c),
            "event": c.event_dim,
            "discrete": c.is_discrete,
            "biject": attempt(lambda: D.biject_to(c)(free)),
            "transform": attempt(lambda: D.transform_to(c)(eye if c.event_dim == 2 else free)),
        }
    return out


def gamma_slopes():
    """d log(z) / d concentration of gamma distributed z at fixed probabilities, with 40 digits."""
    import mpmath as mp

    mp.mp.dps, out = 40, []
    for a in (1e-3, 0.1, 0.7, 1.0, 1.5, 4.0, 30.0, 1000.0):
        for position in (-3, -1, -0.1, 0.1, 1, 3):  # in deviations from the mean of the logarithm
            y = float(min(mp.digamma(a) + position * mp.sqrt(mp.polygamma(1, a)), mp.log(a + 8)))
            alpha, z = mp.mpf(a), mp.exp(y)
            # d/da of P(a, z) = sum of z^(a + n) exp(-z) / gamma(a + n + 1), by the density at z and by z
            total, term, up, n = mp.mpf(0), 1 / alpha, mp.digamma(alpha + 1), 0
            while n < z - alpha or abs(term) > mp.mpf(10) ** -45:
                total += term * (up - y)
                n += 1
                term *= z / (alpha + n)
                up += 1 / (alpha + n)
            out.append([a, y, float(total)])
    return out


def answers(torch):
    """All of it, in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return {
            "distributions": {name: answer(torch, *case) for name, case in cases(torch).items()},
            "divergences": divergences(torch),
            "transforms": transforms(torch),
            "regions": regions(torch),
        }
    finally:
        torch.set_default_dtype(before)


if __name__ == "__main__":
    import torch

    text = json.dumps(
        {"torch": torch.__version__, "gamma_slopes": gamma_slopes(), **answers(torch)}, separators=(",", ":")
    )
    Path(__file__).with_name("distributions.json").write_text(text.replace('},"', '},\n"') + "\n")
