"""The LKJ distribution of correlation matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import _diagonal_matrix, _mvlgamma, broadcast_all, lazy_property

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices, whose density is det(matrix) ** (concentration - 1).

    Source: Lewandowski, Kurowicka, Joe, "Generating random correlation matrices based on vines and
    extended onion method", 2009: each row is a direction on a sphere, scaled by a beta distributed length
    below 1.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    @lazy_property
    def _beta(self) -> Beta:
        """The squared lengths of the rows left of the diagonal; that of the first row is not used."""
        before = facula.arange(self.dim, dtype=self.concentration.dtype).clamp(min=1) - 1
        most = self.concentration + 0.5 * (self.dim - 2)
        return Beta(before / 2 + 0.5, most.unsqueeze(-1) - before / 2, validate_args=False)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with facula.no_grad():
            share = self._beta.sample(sample_shape).unsqueeze(-1)
            direction = facula.randn(self._extended_shape(sample_shape), dtype=share.dtype).tril(-1)
            length = direction.square().sum(-1, keepdim=True).sqrt()
            left_part = share.sqrt() * direction / facula.where(length == 0, 1.0, length)
            rest = (1 - left_part.square().sum(-1)).clamp(min=facula.finfo(share.dtype).tiny)
            return left_part + _diagonal_matrix(rest.sqrt())

    def log_prob(self, value: Tensor) -> Tensor:
        diagonal = self._checked(value).diagonal(dim1=-2, dim2=-1)[..., 1:]
        rows, eta = self.dim - 1, self.concentration
        rest = facula.arange(rows, 0, -1, dtype=eta.dtype) - 1  # columns behind each row's diagonal
        density = ((2 * (eta - 1).unsqueeze(-1) + rest) * diagonal.log()).sum(-1)
        top = eta + 0.5 * rows
        constant = 0.5 * rows * math.log(math.pi) + _mvlgamma(top - 0.5, rows) - rows * top.lgamma()
        return density - constant
