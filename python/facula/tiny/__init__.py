"""Training on microcontrollers: 8-bit networks whose inference and training steps are written as C99.

>>> report = facula.tiny.compile(model, typical_images, "board", ram=256 * 1024, flash=1024 * 1024)

quantises a model that was trained in floating point, chooses the layers that training updates within the
memory, and writes the programs ``model_infer`` and ``model_train`` into a folder.
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
