"""The F distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two independent chi-square numbers, each divided by its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> Tensor:
        df2 = facula.where(self.df2 > 2, self.df2, facula.nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return facula.where(self.df1 > 2, mode, facula.nan)

    @property
    def variance(self) -> Tensor:
        df2 = facula.where(self.df2 > 4, self.df2, facula.nan)
        return 2 * df2.square() * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2).square() * (df2 - 4))

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        a, b = (facula._standard_log_gamma(0.5 * df.expand(shape)) for df in (self.df1, self.df2))
        return (a - b).exp() * (self.df2 / self.df1)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        a, b, ratio = 0.5 * self.df1, 0.5 * self.df2, self.df1 / self.df2
        normalizer = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p() - normalizer
