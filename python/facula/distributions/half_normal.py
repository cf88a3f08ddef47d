"""Absolute values of normal numbers."""

from __future__ import annotations

import math
from typing import Any

from .. import _C
from . import constraints
from .normal import Normal
from .transformed_distribution import Folded
from .transforms import AbsTransform

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["HalfNormal"]


class HalfNormal(Folded):
    """The absolute value of a normal number around 0."""

    arg_constraints = {"scale": constraints.positive}
    base_dist: Normal

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)
