"""Helpers around training: ``data``, ``checkpoint``, ``deterministic``, ``dlpack``."""

_SUBMODULES = frozenset(["checkpoint", "data", "deterministic", "dlpack"])

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import data as data


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        import importlib

        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'facula.utils' has no attribute '{name}'")
