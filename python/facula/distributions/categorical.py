"""The choice of one among several categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution, HasOdds, either

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Categorical"]


class Categorical(HasOdds, Distribution):
    """Index i with probability `probs[..., i]`.

    Args:
        probs: probabilities along the last dimension, which are divided by their sum
        logits: their logarithms, up to an additive constant

    >>> facula.distributions.Categorical(facula.tensor([1.0, 3.0])).probs
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _is_binary = False

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        either(probs, logits)
        name, parameter = ("probs", probs) if logits is None else ("logits", logits)
        if parameter.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        super().__init__(parameter.shape[:-1], validate_args=validate_args)

    @property
    def _num_events(self) -> int:
        return self._param.shape[-1]

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    def _undefined(self) -> Tensor:
        return facula.full(self._extended_shape(), facula.nan, dtype=self.probs.dtype)

    @property
    def mean(self) -> Tensor:
        return self._undefined()

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self._undefined()

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        count = Size(sample_shape).numel()
        rows = self.probs.detach().reshape(-1, self._num_events)
        if not count or not rows.shape[0]:
            return facula.empty(self._extended_shape(sample_shape), dtype=facula.int64)
        return facula.multinomial(rows, count, True).T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value).long().unsqueeze(-1)
        shape = facula.broadcast_shapes(value.shape[:-1], self.logits.shape[:-1])
        logits = self.logits.expand([*shape, -1])
        return logits.gather(-1, value.expand([*shape, 1])).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=facula.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(facula.arange(self._num_events), expand)


class OverCategorical(Distribution):
    """Samples of a Categorical, whose parameters it shares, as vectors over the categories."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(
            self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args
        )

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def probs(self) -> Tensor:
        """The probability of each category."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._categorical.param_shape

    def _new(self, *args: Any, **options: Any) -> Tensor:
        return self._categorical._new(*args, **options)
