"""The beta distribution, on (0, 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .utils import _xlogy, lazy_property

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """Density proportional to x ** (concentration1 - 1) * (1 - x) ** (concentration0 - 1)."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        if not any(isinstance(c, Tensor) for c in (concentration1, concentration0)):
            concentration1, concentration0 = float(concentration1), float(concentration0)
        self._take(validate_args, concentration1=concentration1, concentration0=concentration0)

    @lazy_property
    def _dirichlet(self) -> Dirichlet:
        both = facula.stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False)

    @property
    def _total(self) -> Tensor:
        return self.concentration1 + self.concentration0

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / self._total

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self._total
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        density = _xlogy(self.concentration1 - 1, value) + _xlogy(self.concentration0 - 1, 1 - value)
        return density - self._log_normalizer(self.concentration1, self.concentration0)

    def entropy(self) -> Tensor:
        a, b, total = self.concentration1, self.concentration0, self._total
        digammas = (a - 1) * a.digamma() + (b - 1) * b.digamma() - (total - 2) * total.digamma()
        return self._log_normalizer(a, b) - digammas

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return x.lgamma() + y.lgamma() - (x + y).lgamma()
