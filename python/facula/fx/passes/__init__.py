"""Passes over graphs."""

from . import graph_drawer as graph_drawer
from . import operator_support as operator_support
from . import pass_manager as pass_manager
from . import shape_prop as shape_prop
from . import net_min_base as net_min_base
from . import split_module as split_module
from . import splitter_base as splitter_base
