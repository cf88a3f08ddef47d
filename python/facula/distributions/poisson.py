"""The Poisson distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .exp_family import ExponentialFamily
from .utils import _xlogy, broadcast_all

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Poisson"]


class Poisson(ExponentialFamily):
    """Probability rate ** k * exp(-rate) / k! of k.

    >>> facula.distributions.Poisson(2.0).log_prob(facula.tensor([0.0, 2.0])).exp()
    tensor([0.1353, 0.2707])
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with facula.no_grad():
            return facula.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        rate, value = broadcast_all(self.rate, self._checked(value))
        return _xlogy(value, rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.exp()
