"""The base of all distributions: shapes, validation, and copies with a larger batch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import FunctionType, MethodType
from typing import Any

import facula

from .. import _C
from . import constraints
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

Tensor = _C.Tensor
Size = _C.Size

__all__ = ["Distribution"]


def invalid(what: str, value: Tensor, of: Distribution, condition: str) -> ValueError:
    return ValueError(
        f"Expected {what} ({type(value).__name__} of shape {tuple(value.shape)}) "
        f"{condition.format(of=of)}, but found invalid values:\n{value}"
    )


class Distribution:
    """A probability distribution: a batch of independent distributions of events.

    A subclass declares the constraints of its parameters, ``arg_constraints``, and of its samples,
    ``support``; validation, `expand` and ``repr`` follow from them.

    Args:
        batch_shape: the shape of the batch
        event_shape: the shape of one event
        validate_args: whether parameters and values are checked; None: `set_default_validate_args`
        decides
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    # The last class of this package in the hierarchy: `expand` handles only the attributes of its
    # constructor.
    _expanded_as: type[Distribution] | None = None
    _batch_shape: Size
    _event_shape: Size

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith(__package__ + "."):
            cls._expanded_as = cls

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether distributions that are created later check their arguments."""
        if value not in (True, False):
            raise ValueError(f"expects True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Sequence[int] = Size(),
        event_shape: Sequence[int] = Size(),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            declared = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        for name, constraint in declared.items():
            unknown = name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or unknown:
                continue
            value = getattr(self, name)
            if not bool(constraint.check(value).all()):
                condition = "of distribution {of!r} to satisfy the constraint " + repr(constraint)
                raise invalid(f"parameter {name}", value, self, condition)

    def _take(self, validate_args: bool | None, event_dim: int = 0, **parameters: Any) -> None:
        """Broadcasts parameters whose events have the last `event_dim` dimensions; None is skipped."""
        present = {name: value for name, value in parameters.items() if value is not None}
        self.__dict__.update(zip(present, broadcast_all(*present.values())))
        shape = self.__dict__[next(iter(present))].shape
        cut = len(shape) - event_dim
        Distribution.__init__(self, shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with its batch expanded to `batch_shape`; parameters share memory.

        >>> facula.distributions.Normal(0.0, 1.0).expand([2, 3]).batch_shape
        facula.Size([2, 3])
        """
        if self._expanded_as is None:
            raise NotImplementedError(f"{type(self).__name__} does not define expand")
        new = self._get_checked_instance(self._expanded_as, _instance)
        shape, rank, own = Size(batch_shape), len(self._batch_shape), self._declared()
        for name, value in list(self.__dict__.items()):
            if name in own and isinstance(value, Tensor):
                value = value.expand([*shape, *value.shape[value.dim() - own[name].event_dim :]])
            elif isinstance(value, Distribution):
                value = value.expand([*shape, *value.batch_shape[rank:]])
            elif isinstance(getattr(type(self), name, None), lazy_property):
                continue  # recomputed on demand
            elif isinstance(value, (FunctionType, MethodType)):
                continue  # a method that somebody gave to this object
            new.__dict__[name] = value
        new._batch_shape = shape
        return new

    def _declared(self) -> dict[str, constraints.Constraint]:
        """Returns the parameters' constraints, including those of base families."""
        declared = dict(self.arg_constraints)
        for c in type(self).__mro__:
            if isinstance(more := c.__dict__.get("arg_constraints"), dict):
                declared = {**more, **declared}
        return declared

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method "
                "must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one event."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraint of each parameter."""
        raise NotImplementedError

    @property
    def support(self) -> constraints.Constraint | None:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean, of shape ``batch_shape + event_shape``."""
        raise NotImplementedError(f"{type(self).__name__} does not define mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element."""
        raise NotImplementedError(f"{type(self).__name__} does not define variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each element."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        """Samples of shape ``sample_shape + batch_shape + event_shape``, without a gradient."""
        with facula.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        """Samples that are a differentiable function of the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no samples with a gradient: use sample()")

    def sample_n(self, n: int) -> Tensor:
        """Deprecated: use ``sample((n,))``."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))`.", FutureWarning, stacklevel=2)
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a value of at most `value`."""
        raise NotImplementedError(f"{type(self).__name__} does not define cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile: a sample is at most this number with probability `value`."""
        raise NotImplementedError(f"{type(self).__name__} does not define icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Returns all values of a discrete distribution, along dimension 0; the batch has size 1 unless
        expanded.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define enumerate_support")

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        event, batch = values.shape[1:], self._batch_shape
        values = values.reshape([-1, *[1] * len(batch), *event])
        return values.expand([-1, *batch, *event]) if expand else values

    def entropy(self) -> Tensor:
        """The entropy, of shape ``batch_shape``."""
        raise NotImplementedError(f"{type(self).__name__} does not define entropy")

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Sequence[int] = Size()) -> Size:
        return Size([*sample_shape, *self._batch_shape, *self._event_shape])

    def _checked(self, value: Tensor) -> Tensor:
        """Returns the value, after validation if that is enabled."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        event = value.shape[value.dim() - len(self._event_shape) :]
        if event != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}."
            )
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.shape), reversed(expected)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {expected}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize "
                "the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        assert support is not None
        if not bool(support.check(value).all()):
            condition = f"to be within the support ({support!r}) of the distribution {{of!r}}"
            raise invalid("value argument", value, self, condition)

    def _shown(self) -> dict[str, Tensor]:
        """Returns the parameters that repr shows: those that the constructor received."""
        declared = self.arg_constraints
        stored = {k: self.__dict__[k] for k in declared if k in self.__dict__}
        return stored or {k: getattr(self, k) for k in declared}

    def __repr__(self) -> str:
        shown = (f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in self._shown().items())
        return f"{type(self).__name__}({', '.join(shown)})"


def either(probs: Any, logits: Any) -> None:
    """Raises unless exactly one of the two parameters is passed."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class HasOdds:
    """The parameters of distributions of trials: probabilities, or log-odds."""

    _is_binary = True

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds, or the logarithms of probabilities."""
        return probs_to_logits(self.probs, is_binary=self._is_binary)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=self._is_binary)

    @property
    def _param(self) -> Tensor:
        """The one of the two that the constructor received."""
        return next(v for k, v in self.__dict__.items() if k in ("probs", "logits"))

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.shape

    def _new(self, *args: Any, **options: Any) -> Tensor:
        return self._param.new(*args, **options)
