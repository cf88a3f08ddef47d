"""Common subexpressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..... import _C
from ....graph import Graph
from ....graph_module import GraphModule
from ....node import Node, map_arg
from ...infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]


def _is_repeatable(node: Node) -> bool:
    """Returns whether equal calls of the operator have equal results, and it writes nothing."""
    names = getattr(node.target, "_operators", None)
    if names is None:
        return getattr(node.target, "__module__", "") in ("_operator", "math")
    return all(_C.operator_facts(name)["repeatable"] for name in names)


def get_CSE_banned_ops() -> set[Any]:
    """Returns an empty set: whether calls may be merged follows from the definitions of the operators."""
    return set()


class CSEPass(PassBase):
    """Replaces calls of operators that equal an earlier one by its result; not those of ``is_impure`` or
    whose operators draw random numbers or write.
    """

    def __init__(self, banned_ops: Any = None, is_impure: Callable[[Node], bool] | None = None) -> None:
        self.banned_ops, self.is_impure = set(banned_ops or ()), is_impure

    def _may_merge(self, node: Node) -> bool:
        packet = getattr(node.target, "_overloadpacket", node.target)
        banned = node.target in self.banned_ops or packet in self.banned_ops
        impure = self.is_impure is not None and self.is_impure(node)
        return node.op == "call_function" and not banned and not impure and _is_repeatable(node)

    def call(self, graph_module: GraphModule) -> PassResult:
        graph, values = Graph(), {}
        seen: dict[Any, Node] = {}
        modified = False
        for node in graph_module.graph.nodes:
            key = None
            if self._may_merge(node):
                args, kwargs = map_arg((node.args, node.kwargs), lambda n: values[n])
                key = node.target, _frozen(args), _frozen(dict(kwargs))
            if key is not None and key in seen:
                values[node] = seen[key]
                modified = True
                continue
            values[node] = graph.node_copy(node, lambda n: values[n])
            if key is not None:
                seen[key] = values[node]
        graph._codegen = graph_module.graph._codegen
        result = GraphModule(graph_module, graph)
        for name in ("_checks", "_out_spec"):  # of a module of an exported program
            if hasattr(graph_module, name):
                setattr(result, name, getattr(graph_module, name))
        return PassResult(result, modified)


def _frozen(x: Any) -> Any:
    """Returns a value that is equal, and hashable, for equal arguments of the same types."""
    if isinstance(x, Node):
        return x
    if isinstance(x, dict):
        return "dict", tuple((k, _frozen(v)) for k, v in x.items())
    if isinstance(x, (list, tuple)):
        return type(x).__name__, tuple(map(_frozen, x))
    if isinstance(x, slice):
        return "slice", _frozen((x.start, x.stop, x.step))
    return type(x), repr(x)
