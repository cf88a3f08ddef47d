"""Helpers around training: ``data``."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import data as data


def __getattr__(name: str) -> object:
    if name == "data":
        import importlib

        return importlib.import_module(".data", __name__)
    raise AttributeError(f"module 'facula.utils' has no attribute '{name}'")
