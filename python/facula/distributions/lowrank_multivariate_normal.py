"""Normal vectors whose covariance is a low-rank matrix plus a diagonal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution
from .multivariate_normal import _half_log_det, _mahalanobis
from .utils import _diagonal_matrix, _standard_normal, lazy_property

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance cov_factor @ cov_factor.T + diag(cov_diag).

    The determinant and products with the inverse use the capacitance I + W.T D^-1 W, a matrix of the size
    of the rank (Sherman-Morrison-Woodbury formula).
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
            )
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        batch = facula.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc = loc.expand([*batch, *event])
        self.cov_factor = cov_factor.expand([*batch, *cov_factor.shape[-2:]])
        self.cov_diag = cov_diag.expand([*batch, *event])
        super().__init__(batch, event, validate_args=validate_args)

    @property
    def _scaled_factor(self) -> Tensor:
        """W.T D^-1."""
        return self.cov_factor.mT / self.cov_diag.unsqueeze(-2)

    @lazy_property
    def _capacitance_tril(self) -> Tensor:
        product = self._scaled_factor @ self.cov_factor
        return facula.linalg.cholesky(product + facula.eye(product.shape[-1], dtype=product.dtype))

    def _log_det(self) -> Tensor:
        return 2 * _half_log_det(self._capacitance_tril) + self.cov_diag.log().sum(-1)

    def _mahalanobis(self, x: Tensor) -> Tensor:
        projected = (self._scaled_factor @ x.unsqueeze(-1)).squeeze(-1)
        diagonal_part = (x.square() / self.cov_diag).sum(-1)
        return diagonal_part - _mahalanobis(self._capacitance_tril, projected)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        root = self.cov_diag.sqrt().unsqueeze(-1)
        scaled = self.cov_factor / root
        identity = facula.eye(self._event_shape[0], dtype=scaled.dtype)
        return root * facula.linalg.cholesky(scaled @ scaled.mT + identity)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self.cov_factor @ self.cov_factor.mT + _diagonal_matrix(self.cov_diag)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        solved = facula.linalg.solve_triangular(self._capacitance_tril, self._scaled_factor, upper=False)
        return _diagonal_matrix(self.cov_diag.reciprocal()) - solved.mT @ solved

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        narrow = _standard_normal([*shape[:-1], self.cov_factor.shape[-1]], self.loc.dtype)
        noise = _standard_normal(shape, self.loc.dtype)
        along = (self.cov_factor @ narrow.unsqueeze(-1)).squeeze(-1)
        return self.loc + along + self.cov_diag.sqrt() * noise

    def log_prob(self, value: Tensor) -> Tensor:
        distance = self._mahalanobis(self._checked(value) - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        return 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
