"""Helpers of passes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from ... import _C
from ...nn import Module
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, _get_qualified_name

__all__ = [
    "FxNetAccFusionsFinder",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

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


class FxNetAccFusionsFinder:
    """Finds the fusion groups of a backend: supported nodes that pass sizes and other non-tensors to each
    other, and therefore belong to one part. If a node of a group is not supported, ``acc_nodes`` loses all of
    them. ShapeProp has to have recorded the types.
    """

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module, self.acc_nodes = module, acc_nodes

    def __call__(self) -> dict[Node, NodeSet]:
        group_of: dict[Node, NodeSet] = {}
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS or is_node_output_tensor(node):
                continue
            for user in node.users:
                if user.op in CALLABLE_NODE_OPS:
                    group = group_of.get(node, {node}) | group_of.get(user, {user})
                    group_of.update(dict.fromkeys(group, group))
        for node, group in list(group_of.items()):
            if not group <= self.acc_nodes:
                self.acc_nodes -= group
                del group_of[node]
        return group_of


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Replaces the graph by one whose nodes follow their arguments; otherwise the order stays."""
    nodes = list(gm.graph.nodes)
    position = {n: k for k, n in enumerate(nodes)}
    graph, values = Graph(), {}
    waiting = {n: len(n.all_input_nodes) for n in nodes}
    ready = [position[n] for n in nodes if not waiting[n]]
    while ready:
        node = nodes[heapq.heappop(ready)]
        values[node] = graph.node_copy(node, lambda n: values[n])
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, position[user])
    if len(values) < len(waiting):
        raise RuntimeError("Input graph has cycles, unable to add all nodes in topological order")
    graph._codegen = gm.graph._codegen
    gm.graph = graph
    return gm


legalize_graph = stable_topological_sort
