"""Normal vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution
from .utils import _standard_normal, lazy_property

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["MultivariateNormal"]


_LOG_2PI = math.log(2 * math.pi)


def _mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """Returns the squared length of inverse(factor) x, for lower triangular matrices and vectors that
    broadcast.
    """
    shape = facula.broadcast_shapes(factor.shape[:-2], x.shape[:-1])
    n = x.shape[-1]
    # Systems with the same matrix are solved together: batch dimensions of matrices lead, those of vectors
    # trail.
    if factor.dim() == 2:
        columns = x.reshape(-1, n).mT
        solved = facula.linalg.solve_triangular(factor, columns, upper=False)
        return solved.square().sum(0).reshape(shape)
    factor, x = factor.expand([*shape, n, n]), x.expand([*shape, n]).unsqueeze(-1)
    return facula.linalg.solve_triangular(factor, x, upper=False).square().sum((-2, -1))


def _half_log_det(factor: Tensor) -> Tensor:
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _inverse_from_factor(factor: Tensor) -> Tensor:
    """Returns the inverse of factor @ factor.mT."""
    identity = facula.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    inverse = facula.linalg.solve_triangular(factor, identity, upper=False)
    return inverse.mT @ inverse


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """Returns the lower factor of inverse(precision), from the upper factor of the precision."""
    reversed_factor = facula.linalg.cholesky(precision.flip([-2, -1]))
    upper = reversed_factor.flip([-2, -1]).mT
    identity = facula.eye(precision.shape[-1], dtype=precision.dtype).expand(precision.shape)
    return facula.linalg.solve_triangular(upper, identity, upper=False)


class HasCovariance:
    """Distributions with a covariance, its inverse or its factor as parameter; computations use the
    factor.
    """

    _event_shape: Size
    _batch_shape: Size
    _unbroadcasted_scale_tril: Tensor  # one factor for all where the matrix has no batch

    def _matrix_argument(self, error: type[Exception], **matrices: Any) -> tuple[str, Tensor]:
        present = {name: m for name, m in matrices.items() if m is not None}
        if len(present) != 1:
            raise error(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        ((name, matrix),) = present.items()
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        return name, matrix

    @staticmethod
    def _factor_of(name: str, matrix: Tensor) -> Tensor:
        """The Cholesky factor of the covariance, by the matrix that the constructor got under ``name``."""
        if name == "scale_tril":
            return matrix
        return (
            facula.linalg.cholesky(matrix)
            if name == "covariance_matrix"
            else _precision_to_scale_tril(matrix)
        )

    def _of_batch(self, matrix: Tensor) -> Tensor:
        """Repeats a matrix for the distributions of the batch that share it."""
        return matrix.expand([*self._batch_shape, *matrix.shape[-2:]])

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        return self._of_batch(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self._of_batch(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return self._of_batch(_inverse_from_factor(self._unbroadcasted_scale_tril))


class MultivariateNormal(HasCovariance, Distribution):
    """Normal vectors with mean `loc` and one of a covariance, its inverse, or its lower Cholesky factor.

    >>> d = facula.distributions.MultivariateNormal(facula.zeros(2), facula.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> d.log_prob(facula.zeros(2))
    tensor(-2.3872)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = self._matrix_argument(
            ValueError,
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        n = loc.shape[-1]
        if matrix.shape[-2:] != (n, n):
            raise ValueError(
                f"{name} must be matrices of {n} x {n} as loc has {n} elements, got {matrix.shape}"
            )
        batch = facula.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand([*batch, n])
        self.__dict__[name] = matrix.expand([*batch, n, n])
        super().__init__(batch, [n], validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor_of(name, matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(self._extended_shape())

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        noise = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype)
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        distance = _mahalanobis(factor, self._checked(value) - self.loc)
        return -0.5 * (self._event_shape[0] * _LOG_2PI + distance) - _half_log_det(factor)

    def entropy(self) -> Tensor:
        entropy = 0.5 * self._event_shape[0] * (1 + _LOG_2PI) + _half_log_det(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape)
