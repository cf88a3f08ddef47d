"""Helpers of passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import _C
from ...nn import Module
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, _get_qualified_name

__all__ = ["get_acc_ops_name", "get_node_target", "is_node_output_tensor", "legalize_graph"]

CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]


def get_acc_ops_name(k: Any) -> str:
    """Returns the name of a function as reports show it."""
    return k if isinstance(k, str) else _get_qualified_name(k)


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """Returns the name of what a node calls: of its module's class, its function or its method."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of {', '.join(CALLABLE_NODE_OPS)}, but found {node.op}")
    if node.op == "call_module":
        module = submodules[node.target]
        return f"{type(module).__module__}.{type(module).__qualname__}"
    return node.target if node.op == "call_method" else _get_qualified_name(node.target)


def is_node_output_tensor(node: Node) -> bool:
    """Returns whether a node's result is a tensor, which ShapeProp or export has to have recorded."""
    type_ = node.meta.get("type")
    return (
        isinstance(node.meta.get("val"), _C.Tensor)
        or isinstance(type_, type)
        and issubclass(type_, _C.Tensor)
    )


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Replaces the graph by one whose nodes follow their arguments; otherwise the order stays."""
    graph, values = Graph(), {}
    waiting = {n: sum(1 for i in n.all_input_nodes) for n in gm.graph.nodes}
    ready = [n for n in gm.graph.nodes if not waiting[n]]
    while ready:
        node = ready.pop(0)
        values[node] = graph.node_copy(node, lambda n: values[n])
        for user in gm.graph.nodes:
            if node in user.all_input_nodes:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
    if len(values) < len(waiting):
        raise RuntimeError("Input graph has cycles, unable to add all nodes in topological order")
    graph._codegen = gm.graph._codegen
    gm.graph = graph
    return gm
