"""The modules of facula.nn."""

from .activation import *  # noqa: F403
from .container import ModuleDict, ModuleList, ParameterList, Sequential
from .layers import *  # noqa: F403
from .module import Module
