"""The Laplace distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Laplace"]


class Laplace(Distribution):
    """Density proportional to exp(-abs(x - loc) / scale)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        u = facula.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.icdf(u.clamp(min=0.5 * facula.finfo(u.dtype).eps))  # finite at 0

    def log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (self._checked(value) - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        z = self._checked(value) - self.loc
        return 0.5 - 0.5 * z.sign() * (-z.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        z = value - 0.5
        return self.loc - self.scale * z.sign() * (-2 * z.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
