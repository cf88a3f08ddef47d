"""The multinomial distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .binomial import Binomial
from .categorical import OverCategorical
from .utils import broadcast_all, lazy_property

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Multinomial"]


class Multinomial(OverCategorical):
    """The numbers of occurrences of several categories in `total_count` trials."""

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError(f"inhomogeneous total_count is not supported, got {total_count!r}")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @lazy_property
    def _binomial(self) -> Binomial:
        return Binomial(self.total_count, probs=self.probs)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        picked = self._categorical.sample([self.total_count, *sample_shape])
        counts = facula.zeros(self._extended_shape(sample_shape), dtype=self.probs.dtype)
        picked = picked.movedim(0, -1)
        return counts.scatter_add(-1, picked, facula.ones(picked.shape, dtype=counts.dtype))

    def entropy(self) -> Tensor:
        n = self.total_count
        counts = self._binomial.enumerate_support(expand=False)[1:]
        chances = self._binomial.log_prob(counts).exp()
        repeated = (chances * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + repeated

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        # 0 * log(0) is 0: impossible categories did not occur
        logits = facula.where((value == 0) & (logits == -facula.inf), 0.0, logits)
        return ways + (logits * value).sum(-1)
