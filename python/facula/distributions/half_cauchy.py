"""Absolute values of Cauchy numbers."""

from __future__ import annotations

from typing import Any

import facula

from .. import _C
from . import constraints
from .cauchy import Cauchy
from .transformed_distribution import Folded
from .transforms import AbsTransform

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["HalfCauchy"]


class HalfCauchy(Folded):
    """The absolute value of a Cauchy number around 0."""

    arg_constraints = {"scale": constraints.positive}
    base_dist: Cauchy

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return facula.full(self._extended_shape(), facula.inf, dtype=self.scale.dtype)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance
