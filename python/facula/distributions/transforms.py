"""Transforms of tensors with their inverses and the logarithm of their Jacobian's determinant."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import facula
import facula.nn.functional as F

from .. import _C
from . import constraints
from .utils import (
    Number,
    _diagonal_matrix,
    _sum_rightmost,
    lazy_property,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)

Tensor = _C.Tensor
Size = _C.Size

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]


class Transform:
    """A function with an inverse: ``t(x)``, ``t.inv(y)``, ``t.log_abs_det_jacobian(x, y)``.

    Subclasses define ``_call``, ``_inverse`` and, if they are bijective, ``log_abs_det_jacobian``.

    Args:
        cache_size: 1 caches the last pair of values, so that the inverse of a result is its original operand
    """

    bijective = False
    domain: Any
    codomain: Any
    # Names of the constructor's arguments, which are also attributes: they define equality and copies of
    # transforms. None means equality by identity, and copies only of constructors without arguments.
    _arguments: tuple[str, ...] | None = None

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"cache_size must be 0 or 1, got {cache_size!r}")
        self._cache_size = cache_size
        self._inv: Transform | None = None
        self._cached_x_y: tuple[Any, Any] = (None, None)
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inv": None}

    @property
    def event_dim(self) -> int:
        """The number of trailing dimensions of an event, if domain and codomain agree."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse; its inverse is this transform."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def sign(self) -> Any:
        """1 for increasing and -1 for decreasing transforms."""
        raise NotImplementedError(f"{type(self).__name__} does not define sign")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Returns the same transform with another cache size."""
        if self._cache_size == cache_size:
            return self
        if self._arguments is None and type(self).__init__ is not Transform.__init__:
            raise NotImplementedError(f"{type(self)}.with_cache is not implemented")
        return type(self)(*(getattr(self, a) for a in self._arguments or ()), cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        if self is other or self._arguments is None:
            return self is other
        return type(self) is type(other) and all(
            _equal(getattr(self, a), getattr(other, a)) for a in self._arguments
        )

    __hash__ = object.__hash__

    def __call__(self, x: Any) -> Any:
        if self._cache_size and x is self._cached_x_y[0]:
            return self._cached_x_y[1]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Any) -> Any:
        if self._cache_size and y is self._cached_x_y[1]:
            return self._cached_x_y[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no forward transform")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy / dx|, one number for each event."""
        raise NotImplementedError(f"{type(self).__name__} does not define log_abs_det_jacobian")

    def __repr__(self) -> str:
        return type(self).__name__ + "()"

    def forward_shape(self, shape: Any) -> Any:
        """The shape of the result for an input of `shape`."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of the input for a result of `shape`."""
        return shape


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        same = a == b
        return bool(same.all()) if isinstance(same, Tensor) else same
    return a == b


class _InverseTransform(Transform):
    """The inverse of a transform that has no class for it."""

    _arguments = ("inv",)

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv: Transform = transform

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    domain = constraints.dependent_property(lambda self: self._inv.codomain, is_discrete=False)
    codomain = constraints.dependent_property(lambda self: self._inv.domain, is_discrete=False)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)


def _with_event_dim(region: Any, event_dim: int) -> Any:
    more = event_dim - region.event_dim
    return constraints.independent(region, more) if more else region


class ComposeTransform(Transform):
    """Transforms one after the other; each keeps its own cache.

    >>> t = facula.distributions.ComposeTransform([facula.distributions.ExpTransform(),
    ...                                            facula.distributions.AffineTransform(0.0, 2.0)])
    >>> t(facula.tensor([0.0, 1.0])), t.inv(facula.tensor([2.0]))
    (tensor([2.0000, 5.4366]), tensor([0.]))
    """

    _arguments = ("parts",)

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else list(parts)

    def _event_dims(self) -> tuple[int, int]:
        """The numbers of event dimensions before the first part and after the last."""
        need = change = 0
        for p in self.parts:
            need = max(need, p.domain.event_dim - change)
            change += p.codomain.event_dim - p.domain.event_dim
        return need, need + change

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        return _with_event_dim(self.parts[0].domain, self._event_dims()[0])

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        return _with_event_dim(self.parts[-1].codomain, self._event_dims()[1])

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(p.bijective for p in self.parts)

    @property
    def sign(self) -> Any:
        return functools.reduce(operator.mul, (p.sign for p in self.parts), 1)

    @property
    def inv(self) -> Transform:
        if self._inv is None:
            self._inv = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def __call__(self, x: Any) -> Any:
        for p in self.parts:
            x = p(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return facula.zeros_like(x)
        values = [x]
        for p in self.parts[:-1]:
            values.append(p(values[-1]))
        event_dim, terms = self.domain.event_dim, []
        for p, a, b in zip(self.parts, values, [*values[1:], y]):
            terms.append(_sum_rightmost(p.log_abs_det_jacobian(a, b), event_dim - p.domain.event_dim))
            event_dim += p.codomain.event_dim - p.domain.event_dim
        return functools.reduce(operator.add, terms)

    def forward_shape(self, shape: Any) -> Any:
        return functools.reduce(lambda s, p: p.forward_shape(s), self.parts, shape)

    def inverse_shape(self, shape: Any) -> Any:
        return functools.reduce(lambda s, p: p.inverse_shape(s), reversed(self.parts), shape)

    def __repr__(self) -> str:
        return "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last `reinterpreted_batch_ndims` batch dimensions belong to events."""

    _arguments = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _enough(self, x: Tensor, region: Any) -> Tensor:
        if x.dim() < region.event_dim:
            raise ValueError(
                f"Too few dimensions on input: {x.dim()}, of which events have {region.event_dim}"
            )
        return x

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(self._enough(x, self.domain))

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inv(self._enough(y, self.codomain))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)


def _replaced(shape: Any, old: Size, new: Size) -> Size:
    """Returns a shape with other trailing sizes."""
    if len(shape) < len(old):
        raise ValueError(f"Too few dimensions on input: shape {tuple(shape)} does not end with {tuple(old)}")
    cut = len(shape) - len(old)
    if tuple(shape[cut:]) != tuple(old):
        raise ValueError(f"Shape mismatch: expected {Size(shape[cut:])} but got {old}")
    return Size([*shape[:cut], *new])


class ReshapeTransform(Transform):
    """Reshapes events."""

    bijective = True
    _arguments = ("in_shape", "out_shape")

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError(
                f"in_shape, out_shape have different numbers of elements: {self.in_shape}, {self.out_shape}"
            )
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return _replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _replaced(shape, self.out_shape, self.in_shape)


class _Elementwise(Transform):
    """An increasing function of each element."""

    domain = constraints.real
    bijective = True
    sign = +1  # type: ignore[assignment]
    _arguments = ()


class ExpTransform(_Elementwise):
    """y = exp(x)."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(_Elementwise):
    """y = x ** exponent of positive numbers."""

    domain = codomain = constraints.positive
    _arguments = ("exponent",)

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else facula.tensor(float(exponent))

    @property
    def sign(self) -> Any:  # type: ignore[override]
        return self.exponent.sign()

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return facula.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """The logistic function, at least the dtype's tiny and below 1."""
    info = facula.finfo(x.dtype)
    return x.sigmoid().clamp(min=info.tiny, max=1 - info.eps)


class SigmoidTransform(_Elementwise):
    """y = 1 / (1 + exp(-x)), clamped to at least the dtype's tiny and below 1."""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        info = facula.finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(_Elementwise):
    """y = log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class TanhTransform(_Elementwise):
    """y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh(x)^2) = log(4 / (exp(x) + exp(-x))^2), without cancellation
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(Transform):
    """y = |x|, which is not bijective: the inverse is the positive root."""

    domain = constraints.real
    codomain = constraints.positive
    _arguments = ()

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x.

    Args:
        loc, scale: tensors or numbers
        event_dim: trailing dimensions that make an event
    """

    bijective = True
    _arguments = ("loc", "scale", "event_dim")
    event_dim: int = 0  # type: ignore[assignment]

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return _with_event_dim(constraints.real, self.event_dim)

    codomain = domain

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Number):
            each = facula.full_like(x, math.log(abs(self.scale)))
        else:
            each = self.scale.abs().log()
            each = each.expand(facula.broadcast_shapes(each.shape, x.shape))
        return _sum_rightmost(each, self.event_dim)

    def forward_shape(self, shape: Any) -> Any:
        return facula.broadcast_shapes(
            shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ())
        )

    inverse_shape = forward_shape


class SoftmaxTransform(Transform):
    """y = softmax(x), which is not bijective: x is determined up to an additive constant."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    _arguments = ()

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        return _resized(shape, lambda n: n)

    inverse_shape = forward_shape


def _resized(shape: Any, size: Callable[[int], int], rank: int = 1) -> Size:
    """Returns a shape whose last `rank` sizes, which are equal, are replaced by another size."""
    if len(shape) < rank:
        raise ValueError(f"Too few dimensions on input: {len(shape)} < {rank}")
    return Size([*shape[:-1], size(shape[-1])])


class StickBreakingTransform(Transform):
    """Maps n - 1 numbers to n probabilities: the sigmoid of each is its share of the remaining stick."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True
    _arguments = ()

    @staticmethod
    def _log_remaining(x: Tensor) -> Tensor:
        """The log of the number of remaining pieces: with it, zeros lead to pieces of equal size."""
        return facula.arange(x.shape[-1], 0, -1, dtype=x.dtype).log()

    def _call(self, x: Tensor) -> Tensor:
        info = facula.finfo(x.dtype)
        share = (x - self._log_remaining(x)).sigmoid().clamp(min=info.tiny, max=1 - info.eps)
        left = (1 - share).cumprod(-1)
        return F.pad(share, [0, 1], value=1.0) * F.pad(left, [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        y = y[..., :-1]
        left = (1 - y.cumsum(-1)).clamp(min=facula.finfo(y.dtype).tiny)
        return y.log() - left.log() + self._log_remaining(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._log_remaining(x)
        return (F.logsigmoid(-x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return _resized(shape, lambda n: n + 1)

    def inverse_shape(self, shape: Any) -> Any:
        return _resized(shape, lambda n: n - 1)


class LowerCholeskyTransform(Transform):
    """Maps square matrices to lower triangular ones with a positive diagonal, by the exponential of the
    diagonal.
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    _arguments = ()

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + _diagonal_matrix(x.diagonal(dim1=-2, dim2=-1).exp())

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + _diagonal_matrix(y.diagonal(dim1=-2, dim2=-1).log())


class PositiveDefiniteTransform(Transform):
    """Maps square matrices to positive definite ones, by their Cholesky factor."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    _arguments = ()

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(facula.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Maps n (n - 1) / 2 numbers to the Cholesky factor of a correlation matrix of size n.

    The tanh of the numbers are partial correlations, which break each row's squared length like a stick.
    Source: Lewandowski, Kurowicka, Joe, "Generating random correlation matrices based on vines and extended
    onion method", 2009.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True
    _arguments = ()

    def _call(self, x: Tensor) -> Tensor:
        eps = facula.finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - r.square()).sqrt().cumprod(-1)  # the remaining length of each row, after each column
        r = r + facula.eye(r.shape[-1], dtype=r.dtype)
        return r * F.pad(left[..., :-1], [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = F.pad((1 - y.square().cumsum(-1))[..., :-1], [1, 0], value=1.0)
        share = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return share.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor, intermediates: Any = None) -> Tensor:
        # Element (i, j) is tanh(x_ij) times the root of the row's remaining squared length.
        left = 1 - (y * y).cumsum(-1)
        roots = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        slope = -2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)
        return roots + slope

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input: 0 < 1")
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError(f"Input is not a flattend lower-diagonal number: {shape[-1]}")
        return Size([*shape[:-1], n, n])

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise ValueError(f"Too few dimensions on input: {len(shape)} < 2")
        if shape[-2] != shape[-1]:
            raise ValueError(f"Input is not square: {tuple(shape)}")
        return Size([*shape[:-2], shape[-1] * (shape[-1] - 1) // 2])


class _Parts(Transform):
    """Transforms of slices along a dimension."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _checked(self, x: Tensor, size: int) -> Tensor:
        if not -x.dim() <= self.dim < x.dim():
            raise AssertionError(f"dim {self.dim} out of range for tensor with {x.dim()} dimensions")
        if x.shape[self.dim] != size:
            raise AssertionError(f"size {x.shape[self.dim]} of dim {self.dim} must equal {size}")
        return x


class CatTransform(_Parts):
    """Transforms of slices of sizes `lengths` along a dimension.

    >>> t = facula.distributions.CatTransform([facula.distributions.ExpTransform(),
    ...                                        facula.distributions.identity_transform], lengths=[1, 2])
    >>> t(facula.zeros(3))
    tensor([1., 0., 0.])
    """

    _arguments = ("transforms", "dim", "lengths")

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})"
            )

    @lazy_property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> int:
        """The size of the dimension."""
        return sum(self.lengths)

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        return self._checked(x, self.length).split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return facula.cat([t(part) for t, part in zip(self.transforms, self._split(x))], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return facula.cat([t.inv(part) for t, part in zip(self.transforms, self._split(y))], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = [
            _sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
            for t, a, b in zip(self.transforms, self._split(x), self._split(y))
        ]
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return facula.cat(parts, dim) if dim < 0 else functools.reduce(operator.add, parts)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Parts):
    """Transforms for each index of a dimension."""

    _arguments = ("transforms", "dim")

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        return self._checked(x, len(self.transforms)).unbind(self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return facula.stack([t(part) for t, part in zip(self.transforms, self._split(x))], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return facula.stack([t.inv(part) for t, part in zip(self.transforms, self._split(y))], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._split(x), self._split(y))
        return facula.stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


class CumulativeDistributionTransform(Transform):
    """The distribution function of a distribution, from its support to probabilities."""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1  # type: ignore[assignment]
    _arguments = ("distribution",)

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:  # type: ignore[override]
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
