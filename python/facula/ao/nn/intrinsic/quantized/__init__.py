"""Quantised layers with a rectifier."""

from . import dynamic as dynamic
from .modules import *  # noqa: F403
from .modules import __all__ as __all__
