"""Neural networks: modules, parameters, functions, initial values."""

from . import functional, init, modules, utils
from .modules import *  # noqa: F403
from .parameter import Buffer, Parameter
