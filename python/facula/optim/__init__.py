"""Optimizers, and schedules of their learning rates (``lr_scheduler``)."""

from .adam import Adam
from .adamw import AdamW
from .optimizer import Optimizer
from .sgd import SGD

# Imported when they are asked for: where each lives.
_LATER = {
    "ASGD": ".asgd",
    "Adadelta": ".adadelta",
    "Adafactor": "._adafactor",
    "Adagrad": ".adagrad",
    "Adamax": ".adamax",
    "LBFGS": ".lbfgs",
    "Muon": "._muon",
    "NAdam": ".nadam",
    "RAdam": ".radam",
    "RMSprop": ".rmsprop",
    "Rprop": ".rprop",
    "SparseAdam": ".sparse_adam",
}

__all__ = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import lr_scheduler as lr_scheduler
    from . import swa_utils as swa_utils
    from ._adafactor import Adafactor
    from ._muon import Muon
    from .adadelta import Adadelta
    from .adagrad import Adagrad
    from .adamax import Adamax
    from .asgd import ASGD
    from .lbfgs import LBFGS
    from .nadam import NAdam
    from .radam import RAdam
    from .rmsprop import RMSprop
    from .rprop import Rprop
    from .sparse_adam import SparseAdam


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        import importlib

        if name in ("lr_scheduler", "swa_utils"):
            return importlib.import_module("." + name, __name__)
        if name in _LATER:
            value = getattr(importlib.import_module(_LATER[name], __name__), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
