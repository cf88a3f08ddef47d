"""Modules whose weights are quantised and whose inputs are quantised with the range of each call."""

from .modules import *  # noqa: F403
from .modules import __all__ as __all__
