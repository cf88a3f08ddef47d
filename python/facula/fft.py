"""Discrete Fourier transforms. All are operators of the registry."""

from . import _C, _namespace

__getattr__ = _namespace.fill(globals(), _C.fft)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._C.fft import *  # noqa: F403
