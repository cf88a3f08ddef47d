"""Neural networks: modules, parameters, functions, initial values."""

from . import functional as functional
from . import init as init
from . import modules as modules
from . import utils as utils
from .modules import *
from .parameter import Buffer as Buffer
from .parameter import Parameter as Parameter
