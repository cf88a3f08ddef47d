"""The negative binomial distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .binomial import with_count
from .distribution import Distribution, HasOdds
from .gamma import Gamma
from .utils import lazy_property

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["NegativeBinomial"]


class NegativeBinomial(HasOdds, Distribution):
    """The number of successes, with probability `probs` each, before `total_count` failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        total_count = with_count(total_count, probs, logits)
        self._take(validate_args, total_count=total_count, probs=probs, logits=logits)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    @lazy_property
    def _gamma(self) -> Gamma:
        # total_count may be 0
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with facula.no_grad():
            return facula.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        n, k = self.total_count, self._checked(value)
        ways = (n + k).lgamma() - (1.0 + k).lgamma() - n.lgamma()
        ways = facula.where(n + k == 0, 0.0, ways)
        return n * F.logsigmoid(-self.logits) + k * F.logsigmoid(self.logits) + ways
