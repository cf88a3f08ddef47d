"""Layers with batch normalisation and rectifiers whose weights are rounded, for training."""

from .modules import *  # noqa: F403
from .modules import __all__ as __all__
