"""Linear algebra: operators of the registry, and norms of matrices made of them."""

from __future__ import annotations

from typing import Any

from . import _C, _namespace

Tensor = _C.Tensor
LinAlgError = _C.LinAlgError  # a RuntimeError


def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The norm of the matrices in two dimensions: 'fro', or 1, -1, inf, -inf for sums of columns and rows.

    >>> facula.linalg.matrix_norm(facula.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor(5.)
    """
    if len(dim) != 2 or dim[0] % A.dim() == dim[1] % A.dim():
        raise RuntimeError(f"linalg.matrix_norm: dim must be two different dimensions, got {dim}")
    if ord == "fro":
        return _into("linalg.matrix_norm", _C.linalg.vector_norm(A, 2, list(dim), keepdim, dtype=dtype), out)
    if ord not in (1, -1, float("inf"), float("-inf")):
        if ord in ("nuc", 2, -2):
            raise NotImplementedError(
                f"linalg.matrix_norm: ord={ord!r} needs singular values, which there is no decomposition for"
            )
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    over, extreme = (dim[0], dim[1]) if abs(ord) == 1 else (dim[1], dim[0])
    sums = _C.linalg.vector_norm(A, 1, over, True, dtype=dtype)
    if ord > 0 and sums.shape[extreme] == 0:  # the largest of no lengths
        result = sums.sum(extreme, True)
    else:
        result = sums.amax(extreme, True) if ord > 0 else sums.amin(extreme, True)
    return _into("linalg.matrix_norm", result if keepdim else result.squeeze(tuple(dim)), out)


def norm(
    A: Tensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The norm of vectors (one dimension) or matrices (two); without ``ord`` the 2-norm of all elements.

    >>> facula.linalg.norm(facula.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if isinstance(dim, int):
        dim = (dim,)
    if ord is not None:
        if dim is None and A.dim() not in (1, 2):
            raise RuntimeError(
                "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                f"{A.dim()}D."
            )
        if len(dim or range(A.dim())) == 2:
            return matrix_norm(A, ord, dim or (0, 1), keepdim, dtype=dtype, out=out)
        if isinstance(ord, str):
            raise RuntimeError(f"linalg.norm: ord={ord!r} is a norm of matrices, but one dimension is given")
    result = _C.linalg.vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    return _into("linalg.norm", result, out)


def _into(name: str, result: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        return result
    from ._more import _into as into

    return into(name, result, out)


__getattr__ = _namespace.fill(globals(), _C.linalg)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._C.linalg import *  # noqa: F403
