"""Shared helpers of distributions: broadcasting of parameters, probabilities and logits, lazy properties."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import facula

from .. import _C

Tensor = _C.Tensor
Size = _C.Size
Number = (int, float, bool)

euler_constant = 0.57721566490153286060

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Broadcasts tensors and numbers to tensors of one shape; numbers take the dtype of the first tensor.

    >>> [x.shape for x in facula.distributions.utils.broadcast_all(1.0, facula.zeros(3))]
    [facula.Size([3]), facula.Size([3])]
    """
    if not all(isinstance(v, (Tensor, *Number)) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
            f"__torch_function__, got {[type(v).__name__ for v in values]}."
        )
    like = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = facula.get_default_dtype() if like is None else like.dtype
    tensors = [v if isinstance(v, Tensor) else facula.tensor(v, dtype=dtype) for v in values]
    shape = facula.broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t if t.shape == shape else t.expand(shape) for t in tensors)


def _standard_normal(shape: Sequence[int], dtype: Any, device: Any = None) -> Tensor:
    return facula.randn(list(shape), dtype=dtype)


def _positive_uniform(shape: Sequence[int], dtype: Any) -> Tensor:
    """Uniform numbers in (0, 1]."""
    return 1 - facula.rand(list(shape), dtype=dtype)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    return value.sum(tuple(range(-dim, 0))) if dim else value


def _xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x log y; 0 where both are 0."""
    return x * facula.where((x == 0) & (y <= 0), 1.0, y).log()


def _multivariate(f: Callable[[Tensor], Tensor], x: Tensor, p: int) -> Tensor:
    """Returns the sum of f(x - j / 2) for j below p: the core of the multivariate lgamma and digamma."""
    return f(x.unsqueeze(-1) - facula.arange(p, dtype=x.dtype) / 2).sum(-1)


def _mvlgamma(x: Tensor, p: int) -> Tensor:
    return _multivariate(facula.lgamma, x, p) + p * (p - 1) / 4 * 1.1447298858494002  # log(pi)


def _diagonal_matrix(x: Tensor) -> Tensor:
    return facula.where(facula.eye(x.shape[-1], dtype=facula.bool), x.unsqueeze(-1), 0)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Converts log-odds (binary), or unnormalised log-probabilities along the last dimension, to
    probabilities.
    """
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Clamps probabilities to at least the dtype's eps away from 0 and 1."""
    eps = facula.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The inverse of `logits_to_probs`, for clamped probabilities."""
    p = clamp_probs(probs)
    return p.log() - (-p).log1p() if is_binary else p.log()


class lazy_property:
    """A method whose value is computed once and then stored as an attribute of the instance."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return _LazyPropertyOfClass(self.wrapped)
        with facula.enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.wrapped.__name__] = value  # whatever the class does in __setattr__
        return value


class _LazyPropertyOfClass(lazy_property, property):
    """The lazy property of a class, which documentation tools see as a property."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def _lower(n: int, diag: int) -> Tensor:
    rows = facula.arange(n)
    return rows < rows.view(-1, 1) + (diag + 1)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Returns the elements of square matrices on and below a diagonal, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _lower(n, diag)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Returns lower triangular matrices from their elements on and below a diagonal, row by row."""
    count, n = vec.shape[-1], max(-diag, 0)
    while (m := int(_lower(n, diag).sum())) < count:
        n += 1
    if m != count:
        raise ValueError(
            f"The size of last dimension is {count} which cannot be expressed as the lower triangular part "
            "of a square D x D matrix."
        )
    mat = vec.new_zeros([*vec.shape[:-1], n, n])
    mat[..., _lower(n, diag)] = vec
    return mat
