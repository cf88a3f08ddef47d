"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import facula

from .. import _C
from . import constraints
from .distribution import Distribution
from .utils import lazy_property

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles with density proportional to exp(concentration * cos(x - loc)).

    Samples are drawn by rejection from a wrapped Cauchy distribution. Source: Best and Fisher, "Efficient
    simulation of the von Mises distribution", 1979.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, concentration=concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        # Both exponentials are divided by exp(concentration), their largest factor.
        exponent = self.concentration * ((self._checked(value) - self.loc).cos() - 1)
        return exponent - math.log(2 * math.pi) - facula.special.i0e(self.concentration).log()

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with facula.no_grad():
            k = self.concentration.double().expand(shape).reshape(-1)
            cosine = facula.full_like(k, facula.nan)
            left = facula.arange(k.numel())
            while left.numel():
                proposed, accepted = self._proposal(k[left])
                cosine[left[accepted]] = proposed[accepted]
                left = left[~accepted]
            side = facula.where(facula.rand(cosine.shape) < 0.5, -1.0, 1.0)
            angle = (side * cosine.clamp(-1, 1).acos()).reshape(shape) + self.loc
            return ((angle + math.pi).remainder(2 * math.pi) - math.pi).to(self.loc.dtype)

    @staticmethod
    def _proposal(k: Tensor) -> tuple[Tensor, Tensor]:
        tau = 1 + (1 + 4 * k.square()).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        r = facula.where(k < 1e-5, 1 / k + k, (1 + rho.square()) / (2 * rho))
        u, v = facula.rand([2, k.numel()], dtype=k.dtype)
        z = (math.pi * u).cos()
        cosine = (1 + r * z) / (r + z)
        c = k * (r - cosine)
        return cosine, (c.log() - (1 - v).log() + 1 - c >= 0) | ~k.isfinite()

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        """1 minus the mean cosine of the deviation."""
        return 1 - facula.special.i1e(self.concentration) / facula.special.i0e(self.concentration)
