"""Training on microcontrollers: 8-bit networks whose inference and training steps are written as C99.

:func:`compile` quantises a model that was trained in floating point and writes the programs ``model_infer``
and ``model_train`` into a folder. :func:`contributions` and :func:`evolve` find the layers that are worth
training within a memory.
"""

from ._compile import MemoryExceeded, Report, compile
from ._network import Network, Scale, Update
from ._quantize import quantize
from ._search import Contributions, accuracy, contributions, evolve, fit, memory

__all__ = [
    "Contributions",
    "MemoryExceeded",
    "Network",
    "Report",
    "Scale",
    "Update",
    "accuracy",
    "compile",
    "contributions",
    "evolve",
    "fit",
    "memory",
    "quantize",
]
