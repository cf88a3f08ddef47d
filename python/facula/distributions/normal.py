"""The normal distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import _C
from . import constraints
from .exp_family import ExponentialFamily
from .utils import _standard_normal

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Normal"]


_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class Normal(ExponentialFamily):
    """Density proportional to exp(-((x - loc) / scale) ** 2 / 2).

    >>> d = facula.distributions.Normal(facula.tensor([0.0, 1.0]), 2.0)
    >>> d.log_prob(facula.tensor(1.0))
    tensor([-1.7371, -1.6121])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.loc + _standard_normal(self._extended_shape(sample_shape), self.loc.dtype) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        deviation = self._checked(value) - self.loc
        return -deviation.square() / (2 * self.scale.square()) - self.scale.log() - _HALF_LOG_2PI

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + ((self._checked(value) - self.loc) / self.scale / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + _HALF_LOG_2PI + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.scale.square(), -0.5 / self.scale.square()

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return -0.25 * x.square() / y + 0.5 * (-math.pi / y).log()
