"""PyTorch's graph compiler: only its settings."""

from . import config as config
