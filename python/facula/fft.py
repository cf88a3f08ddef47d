"""Discrete Fourier transforms. All are operators of the registry."""

from . import _C


def _public() -> dict[str, object]:
    return {name: f for name, f in vars(_C.fft).items() if not name.startswith("_")}


globals().update(_public())

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._C.fft import *  # noqa: F403


def __getattr__(name: str) -> object:
    if name in _public():  # defined after the import
        return _public()[name]
    raise AttributeError(f"module 'facula.fft' has no attribute '{name}'")
