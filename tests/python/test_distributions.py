"""facula.distributions against what PyTorch gives (``tests/golden/distributions.json``), SciPy, and itself:
samples against distribution functions and moments, Jacobians against autograd.
"""

import copy
import json
import math
import pickle
import runpy
from pathlib import Path

import facula.distributions as D
import numpy as np
import pytest
import scipy.special
import scipy.stats as stats
from facula.distributions import constraints

import facula

GOLDEN = Path(__file__).parents[1] / "golden"
THEIRS = json.loads((GOLDEN / "distributions.json").read_text())
RECORDER = runpy.run_path(str(GOLDEN / "record_distributions.py"))
# PyTorch shows nothing of parameters that it computes from others; what is shown here is what was given.
SHOWN_MORE = "()"


@pytest.fixture(autouse=True)
def in_float64():
    facula.set_default_dtype(facula.float64)
    facula.manual_seed(5)
    yield
    facula.set_default_dtype(facula.float32)


def t(*x):
    return facula.tensor(x if len(x) > 1 else x[0], dtype=facula.float64)


def close(a, b, tolerance=1e-9):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y, tolerance) for x, y in zip(a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if math.isnan(b) or math.isinf(b):
            return a == b or (math.isnan(a) and math.isnan(b))
        return abs(a - b) <= tolerance * (1 + abs(b))
    return str(a).replace("facula.", "torch.") == str(b)


def differences(ours, theirs, tolerance=1e-9):
    return {k: (ours.get(k), v) for k, v in theirs.items() if not close(ours.get(k), v, tolerance)}


@pytest.mark.parametrize("name", THEIRS["distributions"])
def test_a_distribution_gives_what_pytorchs_does(name):
    theirs = THEIRS["distributions"][name]
    ours = RECORDER["answer"](facula, *RECORDER["cases"](facula)[name])
    if theirs["repr"].endswith(SHOWN_MORE):
        assert ours.pop("repr").startswith(theirs.pop("repr")[:-1])
    # PyTorch's Bessel functions for it are polynomials of single precision.
    wrong = differences(ours, theirs, 1e-5 if name == "VonMises" else 1e-9)
    assert wrong == {}


def test_every_distribution_of_the_package_is_compared():
    compared = {name.split()[0] for name in THEIRS["distributions"]}
    classes = {n for n in D.__all__ if isinstance(getattr(D, n), type)}
    families = {n for n in classes if issubclass(getattr(D, n), D.Distribution)}
    assert families - compared == {"Distribution", "ExponentialFamily", "TransformedDistribution"}


def test_divergences_are_pytorchs_and_there_are_as_many():
    ours = RECORDER["divergences"](facula)
    assert differences(ours, THEIRS["divergences"]) == {} and ours.keys() == THEIRS["divergences"].keys()


@pytest.mark.parametrize("name", THEIRS["transforms"])
def test_a_transform_gives_what_pytorchs_does(name):
    assert differences(RECORDER["transforms"](facula)[name], THEIRS["transforms"][name]) == {}


@pytest.mark.parametrize("name", THEIRS["regions"])
def test_a_constraint_holds_for_what_pytorchs_does(name):
    assert differences(RECORDER["regions"](facula)[name], THEIRS["regions"][name]) == {}


def test_the_slope_of_gamma_numbers_is_exact():
    a, y, slope = (facula.tensor(column) for column in zip(*THEIRS["gamma_slopes"]))
    ours = facula._log_gamma_slope(a, y, a.digamma())
    assert ((ours / slope - 1).abs() < 1e-6).all(), (ours / slope - 1).abs().max()
    x = facula.tensor([0.5, 3.0])
    slopes = facula._standard_gamma_grad(x, x)
    h = 1e-4
    moved = [scipy.special.gammaincinv(x + s * h, scipy.special.gammainc(x, x)) for s in (1, -1)]
    assert np.allclose(slopes, (moved[0] - moved[1]) / (2 * h), rtol=1e-6)


# Against SciPy: what each answers to, and a grid of values.
SCIPY = [
    (D.Beta(0.4, 2.0), stats.beta(0.4, 2.0)),
    (D.Binomial(7, 0.3), stats.binom(7, 0.3)),
    (D.Cauchy(0.5, 2.0), stats.cauchy(0.5, 2.0)),
    (D.Chi2(3.5), stats.chi2(3.5)),
    (D.Exponential(0.4), stats.expon(scale=2.5)),
    (D.FisherSnedecor(3.0, 9.0), stats.f(3.0, 9.0)),
    (D.Gamma(2.5, 0.4), stats.gamma(2.5, scale=2.5)),
    (D.GeneralizedPareto(0.5, 2.0, 0.2), stats.genpareto(0.2, 0.5, 2.0)),
    (D.Geometric(0.3), stats.geom(0.3, loc=-1)),
    (D.Gumbel(0.5, 2.0), stats.gumbel_r(0.5, 2.0)),
    (D.HalfCauchy(2.0), stats.halfcauchy(scale=2.0)),
    (D.HalfNormal(2.0), stats.halfnorm(scale=2.0)),
    (D.InverseGamma(4.5, 2.0), stats.invgamma(4.5, scale=2.0)),
    (D.Laplace(0.5, 2.0), stats.laplace(0.5, 2.0)),
    (D.LogNormal(0.5, 0.6), stats.lognorm(0.6, scale=math.exp(0.5))),
    (D.NegativeBinomial(3.5, 0.4), stats.nbinom(3.5, 0.6)),
    (D.Normal(0.5, 2.0), stats.norm(0.5, 2.0)),
    (D.Pareto(0.5, 4.5), stats.pareto(4.5, scale=0.5)),
    (D.Poisson(2.5), stats.poisson(2.5)),
    (D.StudentT(5.5, 0.5, 2.0), stats.t(5.5, 0.5, 2.0)),
    (D.Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0)),
    (D.VonMises(0.5, 2.0), stats.vonmises(2.0, 0.5)),
    (D.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2.0)),
]


@pytest.mark.parametrize("ours, theirs", SCIPY, ids=lambda d: type(d).__name__)
def test_densities_moments_and_samples_are_scipys(ours, theirs):
    discrete = ours.support.is_discrete
    u = np.linspace(0.02, 0.98, 13)
    x = theirs.ppf(u)
    values = facula.from_numpy(x).float()
    log_prob = theirs.logpmf(x) if discrete else theirs.logpdf(x)
    assert np.allclose(ours.log_prob(values), log_prob, rtol=2e-5, atol=2e-5)
    for f, expected in ((ours.cdf, theirs.cdf(x)), (lambda _: ours.icdf(facula.from_numpy(u).float()), x)):
        try:
            assert np.allclose(f(values), expected, rtol=2e-4, atol=1e-5)
        except NotImplementedError:
            pass
    if not isinstance(ours, (D.Cauchy, D.HalfCauchy, D.VonMises)):
        assert np.allclose((ours.mean, ours.variance), (theirs.mean(), theirs.var()), rtol=1e-4)
    sample = ours.sample((20000,))
    assert sample.shape == (20000,) and ours.support.check(sample).all()
    if discrete:
        low, high = theirs.ppf([0.001, 0.999]).astype(int)
        bins = np.arange(low, high + 1)
        counts = np.array([(sample.numpy() == k).sum() for k in bins])
        expected = theirs.pmf(bins) * 20000
        assert (((counts - expected) / np.sqrt(expected + 5)) ** 2).sum() < len(bins) + 5 * len(bins) ** 0.5
    else:
        assert stats.kstest(sample.double().numpy(), theirs.cdf).pvalue > 1e-3


@pytest.mark.parametrize("concentration", [0.01, 0.3, 1.0, 7.5, 1e4])
def test_gamma_numbers_of_all_concentrations(concentration):
    x = facula._standard_log_gamma(facula.full((20000,), concentration))
    logs = stats.loggamma(concentration)
    assert stats.kstest(x.numpy(), logs.cdf).pvalue > 1e-3


@pytest.mark.parametrize("n, p", [(1, 0.5), (30, 0.2), (30, 0.9), (100, 0.5), (10**6, 0.3), (10**6, 1e-6)])
def test_binomial_numbers_of_all_sizes(n, p):
    x = facula.binomial(facula.full((40000,), float(n)), facula.full((40000,), p)).numpy()
    d = stats.binom(n, p)
    for q in (0.05, 0.3, 0.5, 0.8, 0.99):
        k = d.ppf(q)
        chance = d.cdf(k)
        assert abs((x <= k).mean() - chance) <= 4 * math.sqrt(chance * (1 - chance) / 40000) + 1e-12


@pytest.mark.parametrize("rate", [0.01, 1.0, 9.9, 10.0, 47.0, 1e5])
def test_poisson_numbers_of_all_rates(rate):
    x, d = facula.poisson(facula.full((40000,), rate)).numpy(), stats.poisson(rate)
    for q in (0.05, 0.3, 0.5, 0.8, 0.99):
        k = d.ppf(q)
        chance = d.cdf(k)
        assert abs((x <= k).mean() - chance) <= 4 * math.sqrt(chance * (1 - chance) / 40000) + 1e-12


def test_samplers_at_the_edges():
    assert facula.poisson(t(0.0, 0.0)).tolist() == [0, 0]
    n, p = t(0.0, 5.0, 5.0, 5.0), t(0.5, 0.0, 1.0, math.nan)
    assert facula.binomial(n, p)[:3].tolist() == [0, 0, 5] and facula.binomial(n, p)[3].isnan()
    assert facula._standard_gamma(t(0.0)).item() == 0 and facula._standard_gamma(t(math.nan)).isnan()
    assert facula._standard_gamma(facula.empty(0, 3)).shape == (0, 3)
    assert facula.poisson(facula.ones(2, 3).T).shape == (3, 2)
    for dtype in (facula.float16, facula.bfloat16, facula.float32):
        x = facula.full((100,), 5.0, dtype=dtype)
        assert facula.poisson(x).dtype == facula._standard_gamma(x).dtype == dtype
        assert facula.binomial(x, x / 10).dtype == dtype
    for rate in (-1.0, math.nan):
        with pytest.raises(RuntimeError, match="poisson: .*non-negative"):
            facula.poisson(t(0.0, rate))
    with pytest.raises(RuntimeError, match="same dtype"):
        facula.binomial(t(1.0), facula.tensor(0.5, dtype=facula.float32))
    with pytest.raises(NotImplementedError, match="poisson"):
        facula.poisson(facula.tensor([3]))


@pytest.mark.parametrize("name", [n for n, a in THEIRS["distributions"].items()])
def test_samples_have_shapes_supports_means_and_gradients(name):
    make, parameters, _ = RECORDER["cases"](facula)[name]
    parameters = [x.clone().requires_grad_() for x in parameters]
    d = make(*parameters)
    shape = d.batch_shape + d.event_shape
    assert d.sample().shape == shape and not d.sample().requires_grad
    x = d.sample((3000,))
    assert x.shape == (3000, *shape)
    if "edges" not in name:
        assert d.support.check(x).all()
    try:
        mean, variance = d.mean.detach(), d.variance.detach()
    except NotImplementedError:
        mean = variance = None
    if mean is not None and not isinstance(d, D.VonMises):
        known = (variance < 1e3) & (variance > 0)
        far = (x.double().mean(0) - mean).abs() / (variance / 3000).sqrt()
        # Heavy tails come to their means slowly.
        heavy = name in ("FisherSnedecor", "Pareto", "GeneralizedPareto", "InverseGamma", "StudentT")
        assert (far[known] < (25 if heavy else 5)).all(), far
    if d.has_rsample:
        y = d.rsample((4,))
        assert y.shape == (4, *shape)
        grads = facula.autograd.grad(y.sum(), parameters, allow_unused=True)
        assert all(g is None or g.isfinite().all() for g in grads) and any(g is not None for g in grads)


@pytest.mark.parametrize(
    "make, mean",
    [
        (lambda a: D.Gamma(a, 2.0), lambda a: a / 2),
        (lambda a: D.Beta(a, 2.0), lambda a: a / (a + 2)),
        (lambda a: D.StudentT(8.0, a, 2.0), lambda a: a),
        (lambda a: D.Normal(a, 2.0), lambda a: a),
        (lambda a: D.Weibull(a, 2.0), lambda a: a * math.gamma(1.5)),
        (lambda a: D.Chi2(a), lambda a: a),
        (lambda a: D.Dirichlet(facula.stack([a, a + 1.0])), lambda a: a / (2 * a + 1)),
    ],
)
def test_gradients_of_samples_are_on_average_that_of_the_mean(make, mean):
    a = t(1.5).requires_grad_()
    x = make(a).rsample((40000,))
    x = x[..., 0] if x.dim() == 2 else x
    (ours,) = facula.autograd.grad(x.mean(), a)
    (expected,) = facula.autograd.grad(mean(a), a)
    assert abs(ours - expected) < 0.02


def test_a_seed_gives_the_same_samples_again():
    d = D.Gamma(t(0.3, 2.0), 1.0)
    facula.manual_seed(3)
    x = d.sample((5,))
    facula.manual_seed(3)
    assert x.equal(d.sample((5,))) and not x.equal(d.sample((5,)))


def test_a_mixture_picks_in_proportion():
    d = D.MixtureSameFamily(D.Categorical(t(1.0, 3.0)), D.Normal(t(-10.0, 10.0), 1.0))
    assert abs((d.sample((8000,)) > 0).double().mean() - 0.75) < 0.02


def test_correlations_and_covariances_of_samples():
    cov = t([2.0, 0.5], [0.5, 1.0])
    x = D.MultivariateNormal(t(1.0, -1.0), cov).sample((40000,))
    assert ((x - x.mean(0)).T @ (x - x.mean(0)) / 40000 - cov).abs().max() < 0.05
    w = t([1.0], [0.5])
    y = D.LowRankMultivariateNormal(t(0.0, 0.0), w, t(1.0, 0.2)).sample((40000,))
    assert (y.T @ y / 40000 - (w @ w.T + t([1.0, 0.0], [0.0, 0.2]))).abs().max() < 0.05
    # An element of a correlation matrix of size 3 with concentration 2 is beta distributed on [-1, 1].
    r = D.LKJCholesky(3, 2.0).sample((20000,))
    r = (r @ r.mT)[:, 2, 1]
    assert stats.kstest(((r + 1) / 2).numpy(), stats.beta(2.5, 2.5).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    "name", ["sigmoid", "tanh", "corr cholesky", "stick breaking", "compose event", "softplus"]
)
def test_jacobians_are_autograds(name):
    T = D.transforms
    transform = {
        "sigmoid": T.SigmoidTransform(),
        "tanh": T.TanhTransform(),
        "softplus": T.SoftplusTransform(),
        "corr cholesky": T.CorrCholeskyTransform(),
        "stick breaking": T.StickBreakingTransform(),
        "compose event": T.ComposeTransform([T.AffineTransform(0.5, -2.0), T.StickBreakingTransform()]),
    }[name]
    x = t(0.3, -1.0, 0.8).requires_grad_()
    y = transform(x)
    if name == "corr cholesky":
        free = y[facula.ones(3, 3).tril(-1).bool()]
    else:
        free = y[:3]
    rows = [facula.autograd.grad(f, x, retain_graph=True)[0] for f in free]
    _, expected = facula.stack(rows).slogdet()
    got = transform.log_abs_det_jacobian(x, y)
    assert abs(got.sum() - expected) < 1e-10
    assert (transform.inv(y) - x).abs().max() < 1e-9 and transform.inv.inv is transform


def test_caches_return_what_a_result_was_made_of():
    for transform in (D.ExpTransform(cache_size=1), D.ExpTransform().with_cache()):
        x = t(1.0, 2.0)
        assert transform.inv(transform(x)) is x and transform(x) is transform(x)
    assert D.AffineTransform(1.0, 2.0).with_cache() == D.AffineTransform(1.0, 2.0)
    assert D.AffineTransform(1.0, 2.0) != D.AffineTransform(1.0, 3.0)
    assert D.ExpTransform() == D.ExpTransform() and D.ExpTransform() != D.TanhTransform()
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        D.ExpTransform(cache_size=2)


def test_expanded_distributions_share_memory_and_keep_their_class():
    d = D.Normal(t(0.0, 1.0), t(1.0, 2.0))
    e = d.expand([3, 2])
    assert type(e) is D.Normal and e.batch_shape == (3, 2) and e.loc.data_ptr() == d.loc.data_ptr()

    class Mine(D.Normal):
        def __init__(self, x):
            super().__init__(x, 1.0)

    with pytest.raises(NotImplementedError, match="Subclass Mine of Normal that defines a custom __init__"):
        Mine(t(0.0)).expand([2])

    d.rsample_and_log_prob = (lambda self: self.rsample()).__get__(d)
    assert not hasattr(d.expand([3, 2]), "rsample_and_log_prob")  # a method of d alone

    class Own(D.Distribution):
        arg_constraints = {}

    with pytest.raises(NotImplementedError, match="Own does not define expand"):
        Own().expand([2])
    for name in ("Chi2", "Gumbel", "Wishart", "MixtureSameFamily", "Multinomial"):
        make, parameters, _ = RECORDER["cases"](facula)[name]
        d = make(*parameters)
        e = d.expand([4, *d.batch_shape])
        assert e.sample((2,)).shape == (2, 4, *d.batch_shape, *d.event_shape)
        assert (e.mean == d.mean).all()


def test_copies_and_pickles():
    d = D.TransformedDistribution(
        D.Normal(t(0.0), t(1.0)), [D.ExpTransform().inv.inv, D.AffineTransform(0.0, 2.0)]
    )
    for other in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert other.log_prob(t(1.5)) == d.log_prob(t(1.5))


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: D.Normal(0.0, -1.0), ValueError, "parameter scale .*Tensor of shape \\(\\).*GreaterThan"),
        (lambda: D.Normal(t(0.0, math.nan), 1.0), ValueError, "parameter loc .*Real\\(\\)"),
        (lambda: D.Uniform(2.0, 1.0), ValueError, "parameter low .*LessThan\\(upper_bound=1.0\\)"),
        (lambda: D.Bernoulli(0.5, 0.5), ValueError, "Either `probs` or `logits` must be specified"),
        (lambda: D.Bernoulli(), ValueError, "Either `probs` or `logits` must be specified"),
        (lambda: D.Bernoulli(1.5), ValueError, "Interval\\(lower_bound=0.0, upper_bound=1.0\\)"),
        (lambda: D.Geometric(0.0), ValueError, "to be positive"),
        (lambda: D.Categorical(t(1.0)), ValueError, "at least one-dimensional"),
        (lambda: D.Dirichlet(t(1.0)), ValueError, "at least one-dimensional"),
        (lambda: D.LKJCholesky(1), ValueError, "dim=1"),
        (lambda: D.Wishart(1.0, facula.eye(3)), ValueError, "greater than ndim - 1 = 2"),
        (lambda: D.MultivariateNormal(facula.zeros(2)), ValueError, "Exactly one of"),
        (lambda: D.MultivariateNormal(t(0.0), facula.eye(2)), ValueError, "loc must be at least"),
        (lambda: D.MultivariateNormal(facula.zeros(2), -facula.eye(2)), ValueError, "PositiveDefinite"),
        (lambda: D.MultivariateNormal(facula.zeros(2), facula.eye(3)), ValueError, "2 x 2"),
        (
            lambda: D.LowRankMultivariateNormal(facula.zeros(2), facula.ones(3, 1), facula.ones(2)),
            ValueError,
            "2 x m",
        ),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), ValueError, "actual 1 vs 0"),
        (lambda: D.Multinomial(t(2.0, 3.0), facula.ones(3)), NotImplementedError, "inhomogeneous"),
        (lambda: D.MixtureSameFamily(D.Normal(0, 1), D.Normal(0, 1)), ValueError, "Categorical"),
        (
            lambda: D.MixtureSameFamily(D.Categorical(t(1.0, 1.0)), D.Normal(facula.zeros(3), 1)),
            ValueError,
            "equal",
        ),
        (lambda: D.TransformedDistribution(D.Normal(0, 1), 3), ValueError, "must be a Transform or list"),
        (
            lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform()),
            ValueError,
            "size at least 1",
        ),
        (lambda: D.Normal(0.0, 1.0).log_prob(1.0), ValueError, "must be a Tensor"),
        (lambda: D.Normal(0.0, 1.0).log_prob(t(math.nan)), ValueError, "within the support \\(Real\\(\\)\\)"),
        (lambda: D.Exponential(1.0).cdf(t(-1.0)), ValueError, "within the support"),
        (lambda: D.Normal(facula.zeros(2), 1.0).log_prob(facula.zeros(3)), ValueError, "not broadcastable"),
        (lambda: D.Dirichlet(facula.ones(3)).log_prob(facula.ones(2)), ValueError, "match event_shape"),
        (lambda: D.Normal("0", 1.0), ValueError, "instances of Number"),
        (lambda: D.kl_divergence(D.Normal(0, 1), D.Cauchy(0, 1)), NotImplementedError, "p type Normal and q"),
        (lambda: D.Poisson(1.0).rsample(), NotImplementedError, "Poisson has no samples with a gradient"),
        (lambda: constraints.dependent.check(t(1.0)), ValueError, "Cannot determine validity"),
        (lambda: constraints.dependent.event_dim, NotImplementedError, "statically"),
        (lambda: D.biject_to(constraints.boolean), NotImplementedError, "_Boolean"),
        (lambda: D.transform_to.register(3), TypeError, "got 3"),
        (lambda: D.register_kl(3, D.Normal), TypeError, "type_p"),
        (lambda: D.ReshapeTransform((2,), (3,)), ValueError, "different numbers"),
        (lambda: D.utils.vec_to_tril_matrix(facula.ones(4)), ValueError, "dimension is 4"),
    ],
)
def test_what_is_wrong_is_said(make, error, text):
    with pytest.raises(error, match="(?s)" + text):
        made = make()
        if callable(made):
            made(lambda: 0)


def test_validation_can_be_turned_off():
    assert D.Normal(0.0, -1.0, validate_args=False).scale == -1
    before = D.Distribution._validate_args
    D.Distribution.set_default_validate_args(False)
    try:
        assert D.Exponential(1.0).log_prob(t(-1.0)) == 1
    finally:
        D.Distribution.set_default_validate_args(before)


def test_the_most_specific_divergence_is_taken():
    class P(D.Normal):
        pass

    class Q(D.Normal):
        pass

    assert D.kl_divergence(P(0.0, 1.0), Q(0.0, 1.0)) == 0
    registered = D.kl._REGISTRY
    before = dict(registered)
    try:
        D.register_kl(P, D.Normal)(lambda p, q: 1)
        assert D.kl_divergence(P(0.0, 1.0), Q(0.0, 1.0)) == 1
        D.register_kl(D.Normal, Q)(lambda p, q: 2)
        with pytest.warns(RuntimeWarning, match="Ambiguous"):
            D.kl_divergence(P(0.0, 1.0), Q(0.0, 1.0))
    finally:
        registered.clear()
        registered.update(before)
        D.kl._FOUND.clear()


def test_exponential_families_follow_from_their_normalizers():
    for d in (D.Normal(t(0.5, 1.0), 2.0), D.Gamma(t(2.5), 1.5), D.Bernoulli(t(0.3)), D.Exponential(t(0.7))):
        assert (D.ExponentialFamily.entropy(d) - d.entropy()).abs().max() < 1e-12


def test_parameters_of_all_kinds():
    assert D.Normal(0, 1).sample().dtype == facula.float64 and D.Normal(0, facula.ones(2)).batch_shape == (2,)
    assert D.Bernoulli(facula.tensor([0.5], dtype=facula.float32)).sample().dtype == facula.float32
    assert D.Categorical(facula.ones(2, 3)).sample((4,)).shape == (4, 2)
    assert D.Categorical(facula.ones(2, 3)).sample((0,)).shape == (0, 2)
    assert D.Binomial(facula.tensor([3, 4]), facula.tensor([0.5, 0.5])).total_count.tolist() == [3.0, 4.0]
    assert D.Normal(facula.zeros(0), 1.0).sample((2,)).shape == (2, 0)


@pytest.mark.parametrize("given", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_a_subclass_may_keep_the_factor_in_a_property(given):
    class Watched(D.MultivariateNormal):
        @property
        def _unbroadcasted_scale_tril(self):
            return self._factor  # not there before it is assigned

        @_unbroadcasted_scale_tril.setter
        def _unbroadcasted_scale_tril(self, value):
            self._factor = value

    matrix = facula.tensor([[2.0, 0.0], [1.0, 1.0]])
    matrix = matrix if given == "scale_tril" else matrix @ matrix.T
    own, usual = (c(facula.zeros(3, 2), **{given: matrix}) for c in (Watched, D.MultivariateNormal))
    x = facula.ones(3, 2)
    assert facula.equal(own.log_prob(x), usual.log_prob(x)) and own._factor.shape == (2, 2)
    assert "_unbroadcasted_scale_tril" in vars(usual)
    wider = usual.expand([4, 3])
    assert wider._unbroadcasted_scale_tril.shape == (2, 2) and wider.log_prob(x).shape == (4, 3)


def test_divergences_are_registered_for_any_class():
    class Kind:
        pass

    class Below(Kind):
        pass

    @D.register_kl(Kind, Kind)
    def divergence(p, q):
        return facula.tensor(3.0)

    assert D.kl_divergence(Below(), Kind()).item() == 3
    with pytest.raises(TypeError, match="Expected type_q to be a class but got 3"):
        D.register_kl(Kind, 3)
    with pytest.raises(NotImplementedError, match="p type int and q type Kind"):
        D.kl_divergence(3, Kind())


@pytest.mark.parametrize("given", ["scale_tril", "covariance_matrix", "precision_matrix"])
def test_matrices_of_a_normal_have_the_batch_of_its_mean(given):
    one = D.MultivariateNormal(facula.zeros(2, 3), **{given: 2 * facula.eye(3).unsqueeze(0)})
    for d, batch in ((one, (2,)), (one.expand([4, 2]), (4, 2))):
        for name in ("scale_tril", "covariance_matrix", "precision_matrix"):
            assert getattr(d, name).shape == (*batch, 3, 3), name
    wishart = D.Wishart(facula.tensor([4.0, 5.0]), **{given: 2 * facula.eye(3).unsqueeze(0)})
    assert wishart.scale_tril.shape == wishart.covariance_matrix.shape == (2, 3, 3)
