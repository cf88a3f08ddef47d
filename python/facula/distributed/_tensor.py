"""The name of :mod:`facula.distributed.tensor` before PyTorch 2.5."""

from .tensor import *  # noqa: F403
from .tensor import placement_types as placement_types
