"""Programs as graphs of Python calls: a Tracer runs a module on proxies and records its calls in a Graph,
and a GraphModule executes that. Graphs can be inspected, changed, and written as Python code.

>>> class M(facula.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.lin = facula.nn.Linear(2, 2)
...     def forward(self, x):
...         return facula.relu(self.lin(x)) * 2
>>> traced = facula.fx.symbolic_trace(M())
>>> print(traced.code.strip())
def forward(self, x):
    lin = self.lin(x);  x = None
    relu = facula.relu(lin);  lin = None
    mul = relu * 2;  relu = None
    return mul
"""

from .. import _namespace
from . import immutable_collections as immutable_collections
from . import node as node
from .graph import CodeGen as CodeGen
from .graph import Graph as Graph
from .node import Node as Node
from .node import has_side_effect as has_side_effect
from .node import map_arg as map_arg
from .proxy import Proxy as Proxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._lazy import *

# Imported at first use: libraries import this package only to check whether a value is a Proxy.
_SUBMODULES = "_symbolic_trace experimental graph_module interpreter passes subgraph_rewriter".split()
_ELSEWHERE = {
    "_symbolic_trace": "PH ProxyableClassMeta Tracer symbolic_trace wrap",
    "graph_module": "GraphModule",
    "interpreter": "Interpreter Transformer",
    "subgraph_rewriter": "replace_pattern",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = _namespace.later(globals(), _SUBMODULES, _ELSEWHERE)
