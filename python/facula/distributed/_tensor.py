"""The name that :mod:`facula.distributed.tensor` had before PyTorch 2.5."""

from .tensor import *  # noqa: F403
from .tensor import placement_types as placement_types
