"""The choice of one among several categories, as a one-hot vector."""

from __future__ import annotations

from collections.abc import Sequence

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .categorical import OverCategorical

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(OverCategorical):
    """Vectors with a 1 at index i with probability `probs[..., i]`, else 0."""

    support = constraints.one_hot
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._vectors(self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _vectors(self, index: Tensor) -> Tensor:
        return F.one_hot(index, self._event_shape[0]).to(self._param.dtype)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(self._checked(value).argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(facula.eye(self._event_shape[0], dtype=self._param.dtype), expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical with samples that have the gradient of the probabilities.

    Source: Bengio, Leonard, Courville, "Estimating or propagating gradients through stochastic neurons",
    2013.
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
