"""Covariances of samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .chi2 import Chi2
from .exp_family import ExponentialFamily
from .multivariate_normal import HasCovariance, _half_log_det
from .utils import _diagonal_matrix, _multivariate, _mvlgamma, _standard_normal, lazy_property

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Wishart"]


_LOG_2 = math.log(2)


class Wishart(HasCovariance, ExponentialFamily):
    """Sums of x @ x.T for `df` normal vectors with a covariance, its inverse, or its lower Cholesky
    factor.

    Samples use the Bartlett decomposition; samples that rounding makes singular are drawn again.
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = self._matrix_argument(
            AssertionError,
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        event = matrix.shape[-2:]
        degrees = df if isinstance(df, Tensor) else facula.tensor(df, dtype=matrix.dtype)
        batch = facula.broadcast_shapes(matrix.shape[:-2], degrees.shape)
        self.df = degrees.expand(batch)
        self.__dict__[name] = matrix.expand([*batch, *event])
        if bool((degrees <= event[-1] - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}.")
        if bool((degrees < event[-1]).any()):
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        super().__init__(batch, event, validate_args=validate_args)
        self._unbroadcasted_scale_tril = self._factor_of(name, matrix)

    @lazy_property
    def _chi2(self) -> Chi2:
        indices = facula.arange(self._event_shape[-1], dtype=self.df.dtype)
        return Chi2(self.df.unsqueeze(-1) - indices, validate_args=False)

    @property
    def _df_of_matrices(self) -> Tensor:
        return self.df[..., None, None]

    @property
    def mean(self) -> Tensor:
        return self._df_of_matrices * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self._df_of_matrices - self._event_shape[-1] - 1
        return facula.where(factor > 0, factor, facula.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        return self._df_of_matrices * (covariance.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        root = self._chi2.rsample(sample_shape).sqrt()
        root = root.clamp(min=facula.finfo(root.dtype).eps)
        left_part = _standard_normal(self._extended_shape(sample_shape), root.dtype).tril(-1)
        factor = self._unbroadcasted_scale_tril @ (left_part + _diagonal_matrix(root))
        return factor @ factor.mT

    def rsample(self, sample_shape: Sequence[int] = Size(), max_try_correction: int = 10) -> Tensor:
        sample = self._bartlett_sampling(sample_shape)
        for attempt in range(max_try_correction or 0):
            singular = ~self.support.check(sample)
            if not bool(singular.any()):
                break
            if attempt == 0:
                warnings.warn("Singular sample detected.", stacklevel=2)
            sample = facula.where(singular[..., None, None], self._bartlett_sampling(sample_shape), sample)
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        n, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        trace = (self.precision_matrix * self._checked(value)).sum((-2, -1))
        density = (self.df - n - 1) / 2 * value.slogdet()[1] - trace / 2
        normalizer = self.df * (n * _LOG_2 / 2 + _half_log_det(factor)) + _mvlgamma(self.df / 2, n)
        return density - normalizer

    def entropy(self) -> Tensor:
        n, half = self._event_shape[-1], self.df / 2
        size = (n + 1) * (n * _LOG_2 / 2 + _half_log_det(self._unbroadcasted_scale_tril))
        slope = (self.df - n - 1) / 2 * _multivariate(facula.digamma, half, n)
        return size + _mvlgamma(half, n) - slope + self.df * n / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        return half * (n * _LOG_2 - (-2 * x).slogdet()[1]) + _mvlgamma(half, n)
