"""The geometric distribution: failures before a success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .distribution import Distribution, HasOdds, either, invalid
from .utils import _positive_uniform, broadcast_all

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Geometric"]


class Geometric(HasOdds, Distribution):
    """The number of trials that fail before the first success, of probability `probs`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        either(probs, logits)
        self._take(validate_args, probs=probs, logits=logits)
        if self._validate_args and probs is not None and not bool((self.probs > 0).all()):
            raise invalid("parameter probs", self.probs, self, "of distribution {of!r} to be positive")

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return facula.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with facula.no_grad():
            u = _positive_uniform(self._extended_shape(sample_shape), self.probs.dtype)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        value, probs = broadcast_all(self._checked(value), self.probs)
        certain = (probs == 1) & (value == 0)
        return value * (-facula.where(certain, 0.0, probs)).log1p() + probs.log()

    def entropy(self) -> Tensor:
        cross = F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return cross / self.probs
