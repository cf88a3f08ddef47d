"""Linear algebra. All are operators of the registry."""

from __future__ import annotations

from . import _C, _namespace

LinAlgError = _C.LinAlgError  # a RuntimeError


__getattr__ = _namespace.fill(globals(), _C.linalg)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._C.linalg import *  # noqa: F403
