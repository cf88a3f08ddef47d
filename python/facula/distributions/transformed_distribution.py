"""Distributions of transformed samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution
from .independent import Independent
from .transforms import ComposeTransform, Transform
from .utils import _sum_rightmost

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of samples of a base distribution after transforms.

    >>> from facula.distributions import Normal, ExpTransform, TransformedDistribution
    >>> TransformedDistribution(Normal(0.0, 1.0), [ExpTransform()]).log_prob(facula.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        if isinstance(transforms, Transform):
            transforms = [transforms]
        if not isinstance(transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in transforms):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        self.transforms = transforms
        composed, event_dim = ComposeTransform(transforms), len(base_distribution.event_shape)
        need = composed.domain.event_dim
        shape = base_distribution.batch_shape + base_distribution.event_shape
        if len(shape) < need:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {need}, but got {shape}."
            )
        transformed_shape = Size(composed.forward_shape(shape))
        # parameters of transforms may enlarge the batch
        base_shape = Size(composed.inverse_shape(transformed_shape))
        if base_shape != shape:
            base_distribution = base_distribution.expand(base_shape[: len(base_shape) - event_dim])
        if need > event_dim:
            base_distribution = Independent(base_distribution, need - event_dim)
        self.base_dist = base_distribution
        cut = len(transformed_shape) - composed.codomain.event_dim - max(event_dim - need, 0)
        super().__init__(transformed_shape[:cut], transformed_shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape(Size(batch_shape) + self._event_shape)
        base = self.base_dist
        new.base_dist = base.expand(shape[: len(shape) - len(base.event_shape)])
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        region = self.transforms[-1].codomain
        more = len(self.event_shape) - region.event_dim
        return constraints.independent(region, more) if more > 0 else region

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with facula.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, x: Tensor) -> Tensor:
        for t in self.transforms:
            x = t(x)
        return x

    def _backward(self, y: Tensor) -> Tensor:
        for t in reversed(self.transforms):
            y = t.inv(y)
        return y

    def log_prob(self, value: Tensor) -> Tensor:
        y, event_dim, total = self._checked(value), len(self.event_shape), 0.0
        for t in reversed(self.transforms):
            x = t.inv(y)
            event_dim += t.domain.event_dim - t.codomain.event_dim
            total = total - _sum_rightmost(t.log_abs_det_jacobian(x, y), event_dim - t.domain.event_dim)
            y = x
        return total + _sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))

    def _monotonize_cdf(self, value: Tensor) -> Tensor:
        """If samples are transformed by a decreasing function, P(X >= x) becomes P(Y <= y)."""
        sign: Any = 1
        for t in self.transforms:
            sign = sign * t.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        return self._monotonize_cdf(self.base_dist.cdf(self._backward(self._checked(value))))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._monotonize_cdf(value)))


class Folded(TransformedDistribution):
    """The absolute values of samples of a distribution that is symmetric around 0."""

    support = constraints.nonnegative
    has_rsample = True  # type: ignore[assignment]

    @property
    def scale(self) -> Tensor:
        """The base distribution's scale."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return facula.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        value = facula.as_tensor(self._checked(value), dtype=self.scale.dtype)
        return facula.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -facula.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(self._checked(value)) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
