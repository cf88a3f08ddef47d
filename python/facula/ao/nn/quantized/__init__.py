"""Modules of quantised models, and the operations of models that can be quantised."""

from . import dynamic as dynamic
from . import functional as functional
from .modules import *  # noqa: F403
from .modules import __all__ as __all__
