"""The gamma distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .exp_family import ExponentialFamily
from .utils import _xlogy

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """Density proportional to x ** (concentration - 1) * exp(-rate * x).

    Samples are differentiable by the concentration too: the gradient holds the distribution function
    constant. Source: Figurnov, Mohamed, Mnih, "Implicit reparameterization gradients", 2018.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = facula._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return value.clamp(min=facula.finfo(value.dtype).tiny)  # positive, so that its logarithm is finite

    def log_prob(self, value: Tensor) -> Tensor:
        value = facula.as_tensor(value, dtype=self.rate.dtype)
        density = _xlogy(self.concentration - 1, self._checked(value)) - self.rate * value
        return density + _xlogy(self.concentration, self.rate) - self.concentration.lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    def cdf(self, value: Tensor) -> Tensor:
        return facula.special.gammainc(self.concentration, self.rate * self._checked(value))

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return (x + 1).lgamma() - (x + 1) * (-y).log()
