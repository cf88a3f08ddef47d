"""Optimizers, and schedules of their learning rates (``lr_scheduler``)."""

from .. import _namespace
from .adam import Adam
from .adamw import AdamW
from .optimizer import Optimizer
from .sgd import SGD

# Imported on demand.
_SUBMODULES = "lr_scheduler swa_utils".split()
_ELSEWHERE = {
    "_adafactor": "Adafactor",
    "_muon": "Muon",
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adamax": "Adamax",
    "asgd": "ASGD",
    "lbfgs": "LBFGS",
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "rprop": "Rprop",
    "sparse_adam": "SparseAdam",
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
    from ._lazy import *
else:
    __getattr__, __dir__ = _namespace.later(globals(), _SUBMODULES, _ELSEWHERE)
