"""Distributions whose density is exp(natural parameters . statistics - log normalizer) times a measure."""

from __future__ import annotations

from collections.abc import Sequence

import facula

from .. import _C
from .distribution import Distribution
from .utils import _sum_rightmost

Tensor = _C.Tensor

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Base of exponential families. The entropy and the divergence of two members follow from
    ``_natural_params``, ``_log_normalizer`` and ``_mean_carrier_measure``, because the gradient of the
    log normalizer is the mean of the statistics.

    Source: Nielsen and Nock, "Entropies and cross-entropies of exponential families", 2010.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> float:
        raise NotImplementedError

    def _bregman(self) -> tuple[Sequence[Tensor], Tensor, Sequence[Tensor]]:
        """Natural parameters, the log normalizer, and the means of the statistics."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with facula.enable_grad():
            normalizer = self._log_normalizer(*natural)
            means = facula.autograd.grad(normalizer.sum(), natural, create_graph=True)
        return natural, normalizer, means

    def entropy(self) -> Tensor:
        natural, normalizer, means = self._bregman()
        result = -self._mean_carrier_measure + normalizer
        for p, m in zip(natural, means):
            result = result - _sum_rightmost(p * m, len(self.event_shape))
        return result
