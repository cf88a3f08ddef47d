"""Modules that stand for several layers which run as one."""

from . import qat as qat
from . import quantized as quantized
from .modules import *  # noqa: F403
from .modules import __all__ as __all__
