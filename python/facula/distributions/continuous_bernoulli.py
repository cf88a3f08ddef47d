"""Bernoulli's density on [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .distribution import HasOdds, either
from .exp_family import ExponentialFamily
from .utils import broadcast_all, clamp_probs

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["ContinuousBernoulli"]


def _near(logits: Tensor, series: Tensor, exact: Tensor) -> Tensor:
    return facula.where(logits.abs() < 0.5, series, exact)


class ContinuousBernoulli(HasOdds, ExponentialFamily):
    """Density proportional to probs ** x * (1 - probs) ** (1 - x) for x in [0, 1].

    With t = `logits` this is exp(t x - A), A = log((exp(t) - 1) / t); mean and variance are derivatives
    of A. For abs(t) < 1/2, series replace formulas that suffer from cancellation; `lims`, PyTorch's
    bounds for its series, is stored only.
    Source: Loaiza-Ganem and Cunningham, "The continuous Bernoulli", 2019.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        either(probs, logits)
        self._take(validate_args, probs=probs, logits=logits)
        if probs is not None:
            self.probs = clamp_probs(self.probs)
        self._lims = lims

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        far = facula.where(x.abs() < 0.5, 1.0, x)
        square = x.square()
        series = 1 - square / 120 * (1 - square / 63 * (1 - square / (160 / 3) * (1 - square / 49.5)))
        series = x / 2 + square / 24 * series
        # log((exp(t) - 1) / t) = max(t, 0) + log((1 - exp(-|t|)) / |t|)
        return _near(x, series, far.clamp(min=0) + ((-far.abs()).expm1() / -far.abs()).log())

    def _cont_bern_log_norm(self) -> Tensor:
        return F.softplus(self.logits) - self._log_normalizer(self.logits)

    @property
    def mean(self) -> Tensor:
        t = self.logits
        far = facula.where(t.abs() < 0.5, 1.0, t)
        square = t.square()
        series = 1 - square / 60 * (1 - square / 42 * (1 - square / 40 * (1 - square / 39.6)))
        series = 0.5 + t / 12 * series
        return _near(t, series, -1 / (-far).expm1() - 1 / far)

    @property
    def variance(self) -> Tensor:
        t = self.logits.abs()
        far = facula.where(t < 0.5, 1.0, t)
        square = t.square()
        series = 1 - square / 25.2 * (1 - square / (200 / 7) * (1 - square / 30.8))
        series = 1 / 12 - square / 240 * series
        # 1 / (4 sinh(t / 2)^2)
        return _near(t, series, far.square().reciprocal() - (-far).exp() / (-far).expm1().square())

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with facula.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(facula.rand(self._extended_shape(sample_shape), dtype=self._param.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        return logits * value - self._log_normalizer(logits)

    def cdf(self, value: Tensor) -> Tensor:
        t, x = broadcast_all(self.logits, self._checked(value))
        tiny = t.abs() < 1e-6
        far = facula.where(tiny, 1.0, t)
        fall = -far.abs()
        # (exp(t x) - 1) / (exp(t) - 1); for positive t both are divided by exp(t)
        rising = (far * (x - 1)).exp() * (-far * x).expm1() / fall.expm1()
        falling = (far * x).expm1() / fall.expm1()
        inside = facula.where(tiny, x, facula.where(far > 0, rising, falling))
        return facula.where(x <= 0, 0.0, facula.where(x >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        t, u = broadcast_all(self.logits, value)
        tiny = t.abs() < 1e-6
        far = facula.where(tiny, 1.0, t)
        fall = (-far.abs()).expm1()
        rising = 1 + ((1 - u) * fall).log1p() / far
        falling = (u * fall).log1p() / far
        return facula.where(tiny, u, facula.where(far > 0, rising, falling))

    def entropy(self) -> Tensor:
        return self._log_normalizer(self.logits) - self.logits * self.mean

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)
