"""Optimizers, and schedules of their learning rates (``lr_scheduler``)."""

from .adam import Adam
from .adamw import AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import lr_scheduler as lr_scheduler


def __getattr__(name: str) -> object:
    if name == "lr_scheduler":
        import importlib

        return importlib.import_module(".lr_scheduler", __name__)
    raise AttributeError(f"module 'facula.optim' has no attribute '{name}'")
