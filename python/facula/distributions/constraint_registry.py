"""Transforms from all real numbers to the region of a constraint.

``biject_to(constraint)`` is bijective and has ``log_abs_det_jacobian``, as Hamiltonian Monte Carlo needs;
``transform_to(constraint)`` may be overparametrized, as suits gradient descent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """A table from constraints to functions that create their transforms.

    >>> from facula.distributions import constraints, transform_to
    >>> transform_to(constraints.greater_than(2.0))(facula.zeros(1))
    tensor([3.])
    """

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], Any] | None = None) -> Any:
        """Registers a function for a class of constraints, or for the class of a constraint; also a
        decorator.
        """
        if factory is None:
            return lambda function: self.register(constraint, function)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(
                f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _exp_beyond(bound: str, direction: float) -> Callable[[Any], Any]:
    def make(c: Any) -> Any:
        shift = transforms.AffineTransform(getattr(c, bound), direction)
        return transforms.ComposeTransform([transforms.ExpTransform(), shift])

    return make


def _positive(c: Any) -> Any:
    zero = isinstance(c.lower_bound, (int, float)) and c.lower_bound == 0
    return transforms.ExpTransform() if zero else _exp_beyond("lower_bound", 1)(c)


def _between(c: Any) -> Any:
    low, high = c.lower_bound, c.upper_bound
    if all(isinstance(b, (int, float)) for b in (low, high)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    shift = transforms.AffineTransform(low, high - low)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), shift])


def _register(registry: ConstraintRegistry, table: dict[Any, Callable[[Any], Any]]) -> None:
    for constraint, factory in table.items():
        registry.register(constraint, factory)


for _registry in (biject_to, transform_to):
    _register(
        _registry,
        {
            constraints.real: lambda c: transforms.identity_transform,
            constraints.independent: lambda c, to=_registry: transforms.IndependentTransform(
                to(c.base_constraint), c.reinterpreted_batch_ndims
            ),
            constraints.greater_than: _positive,
            constraints.greater_than_eq: _positive,
            constraints.less_than: _exp_beyond("upper_bound", -1),
            constraints.interval: _between,
            constraints.half_open_interval: _between,
            constraints.corr_cholesky: lambda c: transforms.CorrCholeskyTransform(),
            constraints.cat: lambda c, to=_registry: transforms.CatTransform(
                [to(part) for part in c.cseq], c.dim, c.lengths
            ),
            constraints.stack: lambda c, to=_registry: transforms.StackTransform(
                [to(part) for part in c.cseq], c.dim
            ),
        },
    )
_register(biject_to, {constraints.simplex: lambda c: transforms.StickBreakingTransform()})
_register(
    transform_to,
    {
        constraints.simplex: lambda c: transforms.SoftmaxTransform(),
        constraints.lower_cholesky: lambda c: transforms.LowerCholeskyTransform(),
        constraints.positive_definite: lambda c: transforms.PositiveDefiniteTransform(),
        constraints.positive_semidefinite: lambda c: transforms.PositiveDefiniteTransform(),
    },
)
