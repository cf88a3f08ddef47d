"""Single Bernoulli trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .distribution import HasOdds, either
from .exp_family import ExponentialFamily
from .utils import broadcast_all

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Bernoulli"]


class Bernoulli(HasOdds, ExponentialFamily):
    """1 with probability `probs`, else 0.

    Args:
        probs, logits: the probability of 1, or the logarithm of its odds

    >>> facula.distributions.Bernoulli(facula.tensor([0.25, 0.5])).entropy()
    tensor([0.5623, 0.6931])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        either(probs, logits)
        self._take(validate_args, probs=probs, logits=logits)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return facula.where(self.probs == 0.5, facula.nan, (self.probs > 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with facula.no_grad():
            return facula.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(facula.arange(2, dtype=self._param.dtype), expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return F.softplus(x)
