"""Names of PyTorch's graphs that models touch while they are defined. Programs are not traced into such
graphs yet: what would trace raises.
"""

from .graph import Graph as Graph
from .graph import GraphModule as GraphModule
from .graph import Interpreter as Interpreter
from .node import Node as Node
from .node import has_side_effect as has_side_effect
from .node import map_arg as map_arg
from .proxy import Proxy as Proxy
from .proxy import Tracer as Tracer
from .proxy import symbolic_trace as symbolic_trace
from .proxy import wrap as wrap
