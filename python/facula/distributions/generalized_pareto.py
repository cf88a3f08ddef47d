"""The generalized Pareto distribution: excesses over a threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The excess over `loc`, in units of `scale`; a smaller `concentration` has a shorter tail."""

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        k = self.concentration
        end = self.loc - self.scale / facula.where(k < 0, k, -1.0)
        return constraints.interval(self.loc, facula.where(k < 0, end, facula.inf))

    def _z(self, value: Tensor) -> Tensor:
        return (value - self.loc) / self.scale

    @property
    def _shape_or_one(self) -> tuple[Tensor, Tensor]:
        """Returns where the concentration is practically 0, and the concentration with 1 in these places."""
        zero = self.concentration.abs() < facula.finfo(self.concentration.dtype).tiny
        return zero, facula.where(zero, 1.0, self.concentration)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(facula.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        zero, k = self._shape_or_one
        z = self._z(self._checked(value))
        return facula.where(zero, -z, -(1 + 1 / k) * (k * z).log1p()) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a value above `value`."""
        zero, k = self._shape_or_one
        z = self._z(self._checked(value))
        return facula.where(zero, -z, -(k * z).log1p() / k)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        zero, k = self._shape_or_one
        waited = -(-value).log1p()
        return self.loc + self.scale * facula.where(zero, waited, (k * waited).expm1() / k)

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        return self.loc + self.scale / facula.where(k < 1, 1 - k, facula.nan)

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return self.scale.square() / facula.where(k < 0.5, (1 - k).square() * (1 - 2 * k), facula.nan)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1

    @property
    def mode(self) -> Tensor:
        return self.loc
