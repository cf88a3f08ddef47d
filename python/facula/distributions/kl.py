"""The Kullback-Leibler divergence, E_p[log p(x) - log q(x)].

Two distributions of one family have a formula. For different families on the real line it is the cross
entropy E_p[-log q(x)] minus the entropy of p. -log q is a combination of a few functions of x, whose
means under p are in a table; q must have density wherever p has, which the bounds of the supports decide.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .lowrank_multivariate_normal import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal, _half_log_det, _mahalanobis
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import _sum_rightmost, _xlogy, euler_constant

Tensor = _C.Tensor

__all__ = ["kl_divergence", "register_kl"]

_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}
_KL_REGISTRY = _REGISTRY  # PyTorch's name
_FOUND: dict[tuple[type, type], Callable[[Any, Any], Tensor] | None] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """Registers the decorated function for `kl_divergence` of two classes and their subclasses.

    The most specific match is used; a RuntimeWarning reports an ambiguous one.
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a class but got {kind}")

    def decorator(f: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        _REGISTRY[type_p, type_q] = f
        _FOUND.clear()
        return f

    return decorator


def _find(type_p: type, type_q: type) -> Callable[[Any, Any], Tensor] | None:
    fitting = [k for k in _REGISTRY if issubclass(type_p, k[0]) and issubclass(type_q, k[1])]
    if not fitting:
        return None
    # The nearest classes in method resolution order: comparing p first, and comparing q first.
    distance = {k: (type_p.__mro__.index(k[0]), type_q.__mro__.index(k[1])) for k in fitting}
    by_p = min(fitting, key=lambda k: distance[k])
    by_q = min(fitting, key=lambda k: distance[k][::-1])
    if _REGISTRY[by_p] is not _REGISTRY[by_q]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({by_p[0].__name__}, {by_q[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _REGISTRY[by_p]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The number of additional nats that a code for q needs for samples of p; of shape ``batch_shape``.

    >>> from facula.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 2.0))
    tensor(0.4431)
    """
    kinds = type(p), type(q)
    if kinds not in _FOUND:
        _FOUND[kinds] = _find(*kinds)
    f = _FOUND[kinds]
    if f is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return f(p, q)


# ---- Distributions of one family.


def _same(kind: type) -> Callable[[Any], Any]:
    return register_kl(kind, kind)


@_same(ExponentialFamily)
def _kl_expfamily_expfamily(p: Any, q: Any) -> Tensor:
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            f"divergences: {type(p).__name__} and {type(q).__name__}"
        )
    natural, normalizer, means = p._bregman()
    theirs = q._natural_params
    result = q._log_normalizer(*theirs) - normalizer
    for a, b, mean in zip(natural, theirs, means):
        rank = a.dim() - normalizer.dim()  # a parameter may have fewer dimensions than an event
        result = result - _sum_rightmost((b - a) * mean, rank)
    return result


def _trials(p: Any, q: Any) -> Tensor:
    """The divergence of one trial: 0 where p has no probability, infinity where only q has none."""

    def outcome(mine: Tensor, theirs: Tensor, log_mine: Tensor, log_theirs: Tensor) -> Tensor:
        term = mine * (log_mine - log_theirs)
        term = facula.where((theirs == 0) & (mine > 0), facula.inf, term)
        return facula.where(mine == 0, 0.0, term)

    success = outcome(p.probs, q.probs, F.logsigmoid(p.logits), F.logsigmoid(q.logits))
    failure = outcome(1 - p.probs, 1 - q.probs, F.logsigmoid(-p.logits), F.logsigmoid(-q.logits))
    return success + failure


_same(Bernoulli)(_trials)


@_same(Binomial)
def _kl_binomial_binomial(p: Any, q: Any) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    return facula.where(p.total_count > q.total_count, facula.inf, p.total_count * _trials(p, q))


@_same(Categorical)
def _kl_categorical_categorical(p: Any, q: Any) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = facula.where(q.probs == 0, facula.inf, terms)
    return facula.where(p.probs == 0, 0.0, terms).sum(-1)


@_same(OneHotCategorical)
def _kl_onehot_onehot(p: Any, q: Any) -> Tensor:
    return _kl_categorical_categorical(p._categorical, q._categorical)


@_same(Cauchy)
def _kl_cauchy_cauchy(p: Any, q: Any) -> Tensor:
    # Chyzak and Nielsen, 2019.
    distance = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return distance.log() - (4 * p.scale * q.scale).log()


@_same(Beta)
def _kl_beta_beta(p: Any, q: Any) -> Tensor:
    a, b = p._natural_params, q._natural_params
    mean_logs = [x.digamma() - p._total.digamma() for x in a]
    terms = sum((x - y) * m for x, y, m in zip(a, b, mean_logs))
    return q._log_normalizer(*b) - p._log_normalizer(*a) + terms


@_same(Dirichlet)
def _kl_dirichlet_dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    terms = ((a - b) * (a.digamma() - p._total.digamma())).sum(-1)
    return q._log_normalizer(b) - p._log_normalizer(a) + terms


@_same(ContinuousBernoulli)
def _kl_continuous_bernoulli_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    s, t = p.logits, q.logits
    return p.mean * (s - t) + q._log_normalizer(t) - p._log_normalizer(s)


@_same(Exponential)
def _kl_exponential_exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@_same(Gamma)
def _kl_gamma_gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = (a - b) * a.digamma() + b.lgamma() - a.lgamma()
    return shapes + b * (p.rate / q.rate).log() + (q.rate - p.rate) * (a / p.rate)


@_same(Geometric)
def _kl_geometric_geometric(p: Any, q: Any) -> Tensor:
    return _trials(p, q) / p.probs  # times the average number of trials


@_same(Gumbel)
def _kl_gumbel_gumbel(p: Any, q: Any) -> Tensor:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    fall = ((1 + ratio).lgamma() - shift).exp()
    return shift - ratio.log() + euler_constant * (ratio - 1) + fall - 1


@_same(Normal)
def _kl_normal_normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@_same(HalfNormal)
def _kl_halfnormal_halfnormal(p: Any, q: Any) -> Tensor:
    return _kl_normal_normal(p.base_dist, q.base_dist)


@_same(Laplace)
def _kl_laplace_laplace(p: Any, q: Any) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return apart / q.scale + ratio * (-apart / p.scale).exp() - ratio.log() - 1


@_same(Pareto)
def _kl_pareto_pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _within(p, q, result)


@_same(Poisson)
def _kl_poisson_poisson(p: Any, q: Any) -> Tensor:
    return _xlogy(p.rate, p.rate) - _xlogy(p.rate, q.rate) + q.rate - p.rate


@_same(Uniform)
def _kl_uniform_uniform(p: Any, q: Any) -> Tensor:
    return _within(p, q, ((q.high - q.low) / (p.high - p.low)).log())


@_same(Independent)
def _kl_independent_independent(p: Any, q: Any) -> Tensor:
    n = p.reinterpreted_batch_ndims
    if n != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            f"KL of Independents with {n} and {q.reinterpreted_batch_ndims} reinterpreted dimensions"
        )
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), n)


@_same(TransformedDistribution)
def _kl_transformed_transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL of distributions whose transforms or events differ")
    return kl_divergence(p.base_dist, q.base_dist)


def _normal_vectors(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two (Low Rank) Multivariate Normals with different event shapes "
            f"{p.event_shape} and {q.event_shape} cannot be computed"
        )

    def log_det(d: Any) -> Tensor:
        if isinstance(d, LowRankMultivariateNormal):
            return d._log_det()
        return 2 * _half_log_det(d._unbroadcasted_scale_tril)

    # The trace of inverse(Q) P is the sum of the squared lengths, under inverse(Q), of the columns of a root
    # of P.
    if isinstance(p, LowRankMultivariateNormal):
        diagonal = p.cov_diag.sqrt().unsqueeze(-1) * facula.eye(p.event_shape[0], dtype=p.loc.dtype)
        columns = facula.cat([p.cov_factor, diagonal], -1)
    else:
        columns = p._unbroadcasted_scale_tril
    columns = columns.movedim(-1, 0)
    missing = len(q.batch_shape) - (columns.dim() - 2)
    columns = columns.reshape([columns.shape[0], *[1] * missing, *columns.shape[1:]])
    apart = q.loc - p.loc
    if isinstance(q, LowRankMultivariateNormal):
        trace, distance = q._mahalanobis(columns).sum(0), q._mahalanobis(apart)
    else:
        factor = q._unbroadcasted_scale_tril
        trace, distance = _mahalanobis(factor, columns).sum(0), _mahalanobis(factor, apart)
    return 0.5 * (log_det(q) - log_det(p) + trace + distance - p.event_shape[0])


for _p in (MultivariateNormal, LowRankMultivariateNormal):
    for _q in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_p, _q)(_normal_vectors)


# ---- Distributions of different families.


def _bounds(d: Any) -> tuple[Any, Any]:
    support = d.support
    return getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)


def _within(p: Any, q: Any, result: Tensor) -> Tensor:
    """Returns the result where q's support contains p's, else infinity."""
    (low, high), (least, most) = _bounds(p), _bounds(q)
    contained = facula.as_tensor(low >= least) & facula.as_tensor(high <= most)
    return facula.where(contained, result, facula.inf)


def _mean_of_log(d: Any) -> Tensor:
    """E[log x] for distributions of positive x."""
    if isinstance(d, Beta):
        return d.concentration1.digamma() - d._total.digamma()
    if isinstance(d, Gamma):
        return d.concentration.digamma() - d.rate.log()
    if isinstance(d, Exponential):
        return -euler_constant - d.rate.log()
    if isinstance(d, Pareto):
        return d.scale.log() + 1 / d.alpha
    assert isinstance(d, Uniform)
    return _uniform_mean_of_log(d.low, d.high)


def _uniform_mean_of_log(low: Tensor, high: Tensor) -> Tensor:
    return (_xlogy(high, high) - _xlogy(low, low)) / (high - low) - 1


def _mean_of_exponential(d: Any, t: Tensor) -> Tensor:
    """E[exp(-t x)]."""
    if isinstance(d, Normal):
        return (0.5 * (d.scale * t).square() - d.loc * t).exp()
    if isinstance(d, Exponential):
        return d.rate / (d.rate + t)
    if isinstance(d, Gamma):
        return (1 + t / d.rate).pow(-d.concentration)
    assert isinstance(d, Uniform)
    return ((-t * d.low).exp() - (-t * d.high).exp()) / (t * (d.high - d.low))


def _code_beta(p: Any, q: Any) -> Tensor:
    a, b = q._natural_params
    rest = (b - 1) * _uniform_mean_of_log(1 - p.high, 1 - p.low)  # p is uniform
    return q._log_normalizer(a, b) - (a - 1) * _mean_of_log(p) - rest


def _code_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return q._log_normalizer(q.logits) - q.logits * p.mean


def _code_exponential(p: Any, q: Any) -> Tensor:
    return q.rate * p.mean - q.rate.log()


def _code_gamma(p: Any, q: Any) -> Tensor:
    a = q.concentration
    return a.lgamma() - a * q.rate.log() - (a - 1) * _mean_of_log(p) + q.rate * p.mean


def _code_gumbel(p: Any, q: Any) -> Tensor:
    rate = 1 / q.scale
    mean = (p.mean - q.loc) * rate
    return q.scale.log() + mean + (q.loc * rate).exp() * _mean_of_exponential(p, rate)


def _code_laplace(p: Any, q: Any) -> Tensor:
    # E|x - loc| for normal x
    apart = p.loc - q.loc
    z = apart / p.scale
    mean = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.square()).exp() + apart * (z / math.sqrt(2)).erf()
    return (2 * q.scale).log() + mean / q.scale


def _code_normal(p: Any, q: Any) -> Tensor:
    square = p.variance + (p.mean - q.loc).square()
    finite = 0.5 * (2 * math.pi * q.scale.square()).log() + 0.5 * square / q.scale.square()
    return facula.where(square.isnan(), facula.inf, finite)


def _code_pareto(p: Any, q: Any) -> Tensor:
    return (q.alpha + 1) * _mean_of_log(p) - q.alpha.log() - q.alpha * q.scale.log()


def _code_uniform(p: Any, q: Any) -> Tensor:
    return (q.high - q.low).log()


def _cross(code: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    return lambda p, q: _within(p, q, code(p, q) - p.entropy())


def _infinite(p: Any, q: Any) -> Tensor:
    """Infinite, because p has samples where q has no density."""
    shape = facula.broadcast_shapes(p.batch_shape, q.batch_shape)
    return facula.full(shape, facula.inf, dtype=p.mean.dtype)


_CODES = {
    Beta: _code_beta,
    ContinuousBernoulli: _code_continuous_bernoulli,
    Exponential: _code_exponential,
    Gamma: _code_gamma,
    Gumbel: _code_gumbel,
    Laplace: _code_laplace,
    Normal: _code_normal,
    Pareto: _code_pareto,
    Uniform: _code_uniform,
}
# For each class of p, the classes of q with a finite cross entropy, and those without.
_CROSS: dict[type, tuple[tuple[type, ...], tuple[type, ...]]] = {
    Beta: ((ContinuousBernoulli, Exponential, Gamma, Normal, Uniform), (Pareto,)),
    ContinuousBernoulli: ((Exponential, Normal, Uniform), (Pareto,)),
    Exponential: ((Gamma, Gumbel, Normal), (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gamma: ((Exponential, Gumbel, Normal), (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gumbel: ((Normal,), (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Laplace: ((Normal,), (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Normal: ((Gumbel, Laplace), (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Pareto: ((Exponential, Gamma, Normal), (Beta, ContinuousBernoulli, Uniform)),
    Poisson: ((), (Bernoulli, Binomial)),
    Uniform: ((Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto), ()),
}
for _p, (_finite, _never) in _CROSS.items():
    for _q in _finite:
        register_kl(_p, _q)(_cross(_CODES[_q]))
    for _q in _never:
        register_kl(_p, _q)(_infinite)


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p: Any, q: Any) -> Tensor:
    return q.rate - _xlogy(p.probs, q.rate) - p.entropy()  # 0! = 1! = 1
