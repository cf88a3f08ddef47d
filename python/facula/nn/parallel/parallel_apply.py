"""PyTorch's location of the function of this name."""

from .scatter_gather import parallel_apply as parallel_apply

__all__ = ["parallel_apply"]
