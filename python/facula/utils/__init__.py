"""Helpers around training."""

_SUBMODULES = frozenset(["_pytree", "checkpoint", "data", "deterministic", "dlpack", "hooks", "model_zoo"])

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import data as data


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        import importlib

        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
