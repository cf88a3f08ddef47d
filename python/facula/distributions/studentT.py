"""Student's t distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution
from .utils import _standard_normal

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["StudentT"]


class StudentT(Distribution):
    """A normal number divided by the root of chi2 / df, times `scale`, plus `loc`."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._take(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return facula.where(self.df > 1, self.loc, facula.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        df = facula.where(self.df > 2, self.df, 3.0)
        finite = self.scale.square() * df / (df - 2)
        infinite = facula.where(self.df > 1, facula.inf, facula.nan)
        return facula.where(self.df > 2, finite, infinite)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        normal = _standard_normal(shape, self.df.dtype)
        half = 0.5 * self.df.expand(shape)
        return self.loc + self.scale * normal * (0.5 * (half.log() - facula._standard_log_gamma(half))).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        y = (self._checked(value) - self.loc) / self.scale
        normalizer = (
            self.scale.log()
            + 0.5 * (self.df.log() + math.log(math.pi))
            + (0.5 * self.df).lgamma()
            - (0.5 * (self.df + 1.0)).lgamma()
        )
        return -0.5 * (self.df + 1.0) * (y.square() / self.df).log1p() - normalizer

    def entropy(self) -> Tensor:
        a, b = 0.5 * self.df, 0.5 * (self.df + 1)
        beta = math.lgamma(0.5) + a.lgamma() - b.lgamma()
        return self.scale.log() + b * (b.digamma() - a.digamma()) + 0.5 * self.df.log() + beta
