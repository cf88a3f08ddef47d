"""The Cauchy distribution, which has no mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution
from .utils import _positive_uniform

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Cauchy"]


class Cauchy(Distribution):
    """The ratio of two normal numbers, times `scale`, around `loc`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return facula.full(self._extended_shape(), facula.nan, dtype=self.loc.dtype)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return facula.full(self._extended_shape(), facula.inf, dtype=self.loc.dtype)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.icdf(_positive_uniform(self._extended_shape(sample_shape), self.loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        deviation = (self._checked(value) - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - deviation.square().log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._checked(value) - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
