"""Data pipes under PyTorch's module names."""

from . import iter as iter
from . import map as map
