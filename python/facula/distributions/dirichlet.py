"""The Dirichlet distribution, on the simplex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .exp_family import ExponentialFamily
from .utils import _xlogy

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """Points of the simplex: gamma numbers with these concentrations, divided by their sum.

    Samples are differentiable through the gamma numbers. Source: Figurnov, Mohamed, Mnih, "Implicit
    reparameterization gradients", 2018.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self._take(validate_args, 1, concentration=concentration)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return facula._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        density = _xlogy(self.concentration - 1, self._checked(value)).sum(-1)
        return density - self._log_normalizer(self.concentration)

    @property
    def _total(self) -> Tensor:
        return self.concentration.sum(-1, keepdim=True)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self._total

    @property
    def mode(self) -> Tensor:
        excess = (self.concentration - 1).clamp(min=0.0)
        largest = F.one_hot(self.concentration.argmax(-1), self.concentration.shape[-1]).to(excess.dtype)
        none = (self.concentration < 1).all(-1, keepdim=True)
        return facula.where(none, largest, excess / excess.sum(-1, keepdim=True))

    @property
    def variance(self) -> Tensor:
        total = self._total
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def entropy(self) -> Tensor:
        a, total, n = self.concentration, self.concentration.sum(-1), self.concentration.shape[-1]
        digammas = (total - n) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)
        return self._log_normalizer(a) + digammas

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
