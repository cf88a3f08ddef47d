"""Constraints: the regions of parameters and samples.

``check`` returns, for each event, whether it is in the region. ``event_dim`` is the number of trailing
dimensions of an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import facula

from .. import _C

Tensor = _C.Tensor

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


def _text(bound: Any) -> str:
    return f"{bound}"


class Constraint:
    """A region of values; subclasses define ``check``."""

    is_discrete = False
    event_dim = 0
    _shown: tuple[str, ...] = ()  # names of the attributes that repr shows

    def check(self, value: Tensor) -> Tensor:
        """Returns whether each event of `value` is in the region."""
        raise NotImplementedError

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_text(getattr(self, name))}" for name in self._shown)
        return f"{type(self).__name__.lstrip('_')}({shown})"


class _Dependent(Constraint):
    """A region that depends on other values and cannot be checked without them."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        """Returns the same constraint with its kind of events."""
        told = (is_discrete, event_dim)
        present = (self._is_discrete, self._event_dim)
        d, e = (k if t is NotImplemented else t for t, k in zip(told, present))
        return _Dependent(is_discrete=d, event_dim=e)

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Constraint) -> bool:
    """Returns whether a constraint depends on other values."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property that is a constraint for instances, and a dependent constraint for the class.

    >>> from facula.distributions import constraints
    >>> class D:
    ...     @constraints.dependent_property(is_discrete=False, event_dim=0)
    ...     def support(self): return constraints.interval(0, 1)
    >>> constraints.is_dependent(D.support), D().support
    (True, Interval(lower_bound=0, upper_bound=1))
    """

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[..., Any]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _Derived(Constraint):
    """A region derived from another one."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(
                f"base_constraint must be a Constraint, got {type(base_constraint).__name__}"
            )
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim


class _IndependentConstraint(_Derived):
    """The base region with `reinterpreted_batch_ndims` more event dimensions; all parts of an event must
    be in it.
    """

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        super().__init__(base_constraint)
        if not isinstance(reinterpreted_batch_ndims, int) or reinterpreted_batch_ndims < 0:
            raise AssertionError(
                f"reinterpreted_batch_ndims must be an int >= 0, got {reinterpreted_batch_ndims!r}"
            )
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        valid, n = self.base_constraint.check(value), self.reinterpreted_batch_ndims
        return valid.flatten(-n).all(-1) if n else valid

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(_Derived):
    """The intersection of the regions of all components of a mixture."""

    def check(self, value: Tensor) -> Tensor:
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        valid = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        batch_dims = value.dim() - self.event_dim
        return valid.reshape([*valid.shape[:batch_dims], -1]).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value: Tensor) -> Tensor:
        return boolean.check(value).all(-1) & (value.sum(-1) == 1)


class _Bounded(Constraint):
    """Numbers between bounds; subclasses define which bounds exist and whether they belong to the region."""

    lower_bound: Any
    upper_bound: Any
    _excludes_lower = _excludes_upper = False

    def __init__(self, **bounds: Any) -> None:
        self.__dict__.update(bounds)
        self._shown = tuple(bounds)

    def check(self, value: Tensor) -> Tensor:
        valid = value % 1 == 0 if self.is_discrete else None
        if "lower_bound" in self.__dict__:
            is_above = self.lower_bound < value if self._excludes_lower else self.lower_bound <= value
            valid = is_above if valid is None else valid & is_above
        if "upper_bound" in self.__dict__:
            is_below = value < self.upper_bound if self._excludes_upper else value <= self.upper_bound
            valid = is_below if valid is None else valid & is_below
        assert valid is not None
        return valid


class _From(_Bounded):
    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound=lower_bound)


class _To(_Bounded):
    def __init__(self, upper_bound: Any) -> None:
        super().__init__(upper_bound=upper_bound)


class _FromTo(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__(lower_bound=lower_bound, upper_bound=upper_bound)


class _IntegerInterval(_FromTo):
    is_discrete = True


class _IntegerLessThan(_To):
    is_discrete = True


class _IntegerGreaterThan(_From):
    is_discrete = True


class _GreaterThan(_From):
    _excludes_lower = True


class _GreaterThanEq(_From):
    pass


class _LessThan(_To):
    _excludes_upper = True


class _Interval(_FromTo):
    pass


class _HalfOpenInterval(_FromTo):
    _excludes_upper = True


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Counts whose sum is at most `upper_bound`."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Cholesky factors of correlation matrices, whose rows have length 1."""

    def check(self, value: Tensor) -> Tensor:
        tolerance = facula.finfo(value.dtype).eps * value.shape[-1] * 10
        lengths = value.detach().square().sum(-1).sqrt()
        return super().check(value) & ((lengths - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return facula.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=facula.bool)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        square = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return square
        return facula.isclose(value, value.mT, atol=1e-6).flatten(-2).all(-1)


class _Definite(_Symmetric):
    """Symmetric matrices that have a Cholesky factor."""

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if not bool(symmetric.all()):
            return symmetric
        return self._holds(value.detach())

    def _holds(self, matrices: Tensor) -> Tensor:
        factor, info = facula.linalg.cholesky_ex(matrices)
        return (info == 0) & factor.isfinite().flatten(-2).all(-1)


class _PositiveDefinite(_Definite):
    pass


class _PositiveSemidefinite(_Definite):
    """Symmetric matrices without negative eigenvalues: adding a positive multiple of 1 makes them
    definite.
    """

    def _holds(self, matrices: Tensor) -> Tensor:
        n, info = matrices.shape[-1], facula.finfo(matrices.dtype)
        shift = (matrices.abs().sum(-1).amax(-1) * n * info.eps).clamp(min=info.tiny)
        identity = facula.eye(n, dtype=matrices.dtype)
        return super()._holds(matrices + shift[..., None, None] * identity)


class _Parts(Constraint):
    """Regions side by side along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)

    def _dim_in(self, value: Tensor) -> int:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for value with {value.dim()} dimensions")
        return self.dim


class _Cat(_Parts):
    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    def check(self, value: Tensor) -> Tensor:
        parts = value.narrow(self._dim_in(value), 0, sum(self.lengths)).split(self.lengths, self.dim)
        return facula.cat([c.check(part) for c, part in zip(self.cseq, parts)], self.dim)


class _Stack(_Parts):
    @property
    def event_dim(self) -> int:  # type: ignore[override]
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Tensor:
        parts = value.unbind(self._dim_in(value))
        return facula.stack([c.check(part) for c, part in zip(self.cseq, parts)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
