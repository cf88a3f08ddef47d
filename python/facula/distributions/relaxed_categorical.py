"""Differentiable approximations of the choice of a category."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution
from .one_hot_categorical import OneHotCategorical
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform
from .utils import broadcast_all, clamp_probs

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(OneHotCategorical):
    """The logarithms of RelaxedOneHotCategorical's samples.

    Source: Maddison, Mnih, Teh, "The concrete distribution", 2017; Jang, Gu, Poole, "Categorical
    reparameterization with Gumbel-softmax", 2017.
    """

    support = constraints.real_vector  # contains the exact support
    has_rsample = True
    has_enumerate_support = False

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return Distribution.sample(self, sample_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        u = clamp_probs(facula.rand(self._extended_shape(sample_shape), dtype=self.logits.dtype))
        return ((self.logits - (-u.log()).log()) / self.temperature).log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        temperature, n = facula.as_tensor(self.temperature), self._event_shape[0]
        scores = (logits - value * temperature).log_softmax(-1).sum(-1)
        return scores + math.lgamma(n) + (n - 1) * temperature.log()

    def _unknown(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define this")

    mean = mode = variance = property(_unknown)  # type: ignore[assignment]

    def entropy(self) -> Tensor:
        return self._unknown()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._unknown()


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of the simplex, closer to a corner for lower temperatures; samples are differentiable."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True  # type: ignore[assignment]

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Logarithms of probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
