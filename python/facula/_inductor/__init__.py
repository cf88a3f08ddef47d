"""PyTorch's compiler of graphs: its settings alone."""

from . import config as config
