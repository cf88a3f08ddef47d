"""PyTorch's location of the function of this name."""

from .scatter_gather import replicate as replicate

__all__ = ["replicate"]
