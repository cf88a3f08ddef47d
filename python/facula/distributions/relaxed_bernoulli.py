"""Differentiable approximations of Bernoulli trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .distribution import Distribution, HasOdds, either
from .transformed_distribution import TransformedDistribution
from .transforms import SigmoidTransform
from .utils import broadcast_all, probs_to_logits

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(HasOdds, Distribution):
    """The logits of RelaxedBernoulli's samples.

    Source: Maddison, Mnih, Teh, "The concrete distribution", 2017.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        either(probs, logits)
        self.temperature = temperature
        self._take(validate_args, probs=probs, logits=logits)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = probs_to_logits(facula.rand(shape, dtype=self._param.dtype), is_binary=True)
        return (noise + probs_to_logits(self.probs.expand(shape), is_binary=True)) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        difference = logits - value * self.temperature
        return facula.as_tensor(self.temperature).log() + difference - 2 * F.softplus(difference)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers between 0 and 1, closer to either for lower temperatures; samples are differentiable."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True  # type: ignore[assignment]

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log-odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
