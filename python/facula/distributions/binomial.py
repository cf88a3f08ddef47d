"""Numbers of successes among trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .distribution import Distribution, HasOdds, either

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Binomial"]


def with_count(total_count: Any, probs: Any, logits: Any) -> Any:
    """Returns the number of trials in the dtype of the parameter for their probability."""
    either(probs, logits)
    param = logits if probs is None else probs
    if isinstance(total_count, Tensor) and isinstance(param, Tensor):
        return total_count.to(param.dtype)
    return total_count


class Binomial(HasOdds, Distribution):
    """Successes among `total_count` trials with probability `probs` each.

    >>> facula.distributions.Binomial(4, facula.tensor([0.5])).log_prob(facula.tensor([2.0])).exp()
    tensor([0.3750])
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        total_count = with_count(total_count, probs, logits)
        self._take(validate_args, total_count=total_count, probs=probs, logits=logits)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with facula.no_grad():
            return facula.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        n, k = self.total_count, self._checked(value)
        ways = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
        return ways + k * self.logits - n * F.softplus(self.logits)

    def _count(self, what: str) -> int:
        n = int(self.total_count.max())
        if bool((self.total_count != n).any()):
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{what}`.")
        return n

    def entropy(self) -> Tensor:
        self._count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._count("enumerate_support")
        return self._enumerated(facula.arange(n + 1, dtype=self._param.dtype), expand)
