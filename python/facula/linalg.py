"""Linear algebra. All are operators of the registry."""

from __future__ import annotations

from collections.abc import Sequence

from . import _C, _namespace

LinAlgError = _C.LinAlgError  # a RuntimeError


def _powsum(
    x: _C.Tensor,
    ord: complex,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: _C.dtype | None = None,
    out: _C.Tensor | None = None,
) -> _C.Tensor:
    """Returns the sum of ``abs(x) ** ord``: a vector norm without its root, so that partial results can
    be added.
    """
    if not (x.is_floating_point() or x.is_complex()):
        raise NotImplementedError(
            f"linalg._powsum: expected a floating-point or complex tensor, not {x.dtype}"
        )
    dims = list(range(x.dim())) if dim is None else dim
    return _C.functions.sum((x if dtype is None else x.to(dtype)).abs() ** ord, dims, keepdim, out=out)


__getattr__ = _namespace.fill(globals(), _C.linalg)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._C.linalg import *  # noqa: F403
