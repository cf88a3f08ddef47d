"""Programs as graphs of Python calls: a Tracer runs a module on proxies, a Graph holds what it did, a
GraphModule runs that again. Graphs are read, changed, and written as Python.

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
    from . import passes as passes
    from ._symbolic_trace import PH as PH
    from ._symbolic_trace import ProxyableClassMeta as ProxyableClassMeta
    from ._symbolic_trace import Tracer as Tracer
    from ._symbolic_trace import symbolic_trace as symbolic_trace
    from ._symbolic_trace import wrap as wrap
    from .graph_module import GraphModule as GraphModule
    from .interpreter import Interpreter as Interpreter
    from .interpreter import Transformer as Transformer
    from .subgraph_rewriter import replace_pattern as replace_pattern

# Names that follow at their first use, by the module that has them: libraries import this package only to ask
# whether what they got is a Proxy.
_ELSEWHERE = {
    _name: _module
    for _module, _names in {
        "_symbolic_trace": "PH ProxyableClassMeta Tracer symbolic_trace wrap",
        "graph_module": "GraphModule",
        "interpreter": "Interpreter Transformer",
        "subgraph_rewriter": "replace_pattern",
    }.items()
    for _name in _names.split()
}
_SUBMODULES = frozenset(["_symbolic_trace", "graph_module", "interpreter", "passes", "subgraph_rewriter"])

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        import importlib

        if name in _SUBMODULES:
            return importlib.import_module("." + name, __name__)
        if name in _ELSEWHERE:
            value = getattr(importlib.import_module("." + _ELSEWHERE[name], __name__), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_ELSEWHERE})
