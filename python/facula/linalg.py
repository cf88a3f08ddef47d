"""Linear algebra. All are operators of the registry."""

from . import _C


def _public() -> dict[str, object]:
    return {name: f for name, f in vars(_C.linalg).items() if not name.startswith("_")}


globals().update(_public())

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._C.linalg import *  # noqa: F403


def __getattr__(name: str) -> object:
    if name in _public():  # defined after the import
        return _public()[name]
    raise AttributeError(f"module 'facula.linalg' has no attribute '{name}'")
