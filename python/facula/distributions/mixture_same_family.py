"""Mixtures of distributions of one family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A sample of one of several distributions, chosen at random.

    Args:
        mixture_distribution: a Categorical, which chooses
        component_distribution: the distributions, along the last dimension of its batch
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        mixture_distribution: Any,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                "The Mixture distribution needs to be an instance of torch.distributions.Categorical, got "
                f"{type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution needs to be an instance of torch.distributions.Distribution, got "
                f"{type(component_distribution).__name__}"
            )
        batch, own = component_distribution.batch_shape, mixture_distribution.batch_shape
        if not batch:
            raise ValueError(
                "`component_distribution` needs a batch: its last dimension is that of components"
            )
        for a, b in zip(reversed(own), reversed(batch[:-1])):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({own}) is not compatible with "
                    f"`component_distribution.batch_shape` ({batch})"
                )
        count = mixture_distribution.logits.shape[-1]
        if count != batch[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({batch[-1]})"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = count
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the choice."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The distributions to choose from."""
        return self._component_distribution

    def _weighted(self, x: Tensor) -> Tensor:
        """Returns the mean over components."""
        n = len(self._event_shape)
        weights = self._mixture_distribution.probs
        return (weights.reshape([*weights.shape, *[1] * n]) * x).sum(-1 - n)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        n = len(self._event_shape)
        apart = self._component_distribution.mean - self.mean.unsqueeze(-1 - n)
        return self._weighted(self._component_distribution.variance + apart.square())

    def cdf(self, x: Tensor) -> Tensor:
        parts = self._component_distribution.cdf(self._checked(x).unsqueeze(-1 - len(self._event_shape)))
        return (parts * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        value = self._checked(x).unsqueeze(-1 - len(self._event_shape))
        parts = self._component_distribution.log_prob(value)
        return (parts + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with facula.no_grad():
            values = self._component_distribution.sample(sample_shape)
            n, shape = len(self._event_shape), self._extended_shape(sample_shape)
            picked = self._mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            at = picked.reshape([*picked.shape, 1, *[1] * n])
            cut = len(shape) - n
            return values.gather(cut, at.expand([*shape[:cut], 1, *shape[cut:]])).squeeze(cut)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
