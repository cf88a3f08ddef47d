"""Discrete Fourier transforms. All are operators of the registry."""

from . import _C, _namespace

__all__ = sorted(name for name in vars(_C.fft) if not name.startswith("_"))
__getattr__ = _namespace.fill(globals(), _C.fft)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._C.fft import *  # noqa: F403
