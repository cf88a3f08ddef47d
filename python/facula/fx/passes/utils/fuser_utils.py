"""Makes parts of a graph submodules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...graph import Graph
from ...graph_module import GraphModule
from ...node import Node
from ..split_module import split_module

__all__ = ["fuse_by_partitions", "topo_sort", "validate_partition"]


def topo_sort(nodes: Iterable[Node]) -> list[Node]:
    """Returns nodes in the order of their graph."""
    chosen = set(nodes)
    return [n for n in next(iter(chosen)).graph.nodes if n in chosen] if chosen else []


def validate_partition(partition: Iterable[Node]) -> bool:
    """Returns whether no node outside both depends on the part and is read by it."""
    inside = set(partition)
    outside: set[Node] = set()
    for n in topo_sort(inside)[:1] and next(iter(inside)).graph.nodes:
        if n in inside:
            if any(i in outside for i in n.all_input_nodes):
                return False
        elif any(i in inside or i in outside for i in n.all_input_nodes):
            outside.add(n)
    return True


def fuse_by_partitions(
    gm: GraphModule, partitions: list[Any], prefix: str = "fused_", **options: Any
) -> GraphModule:
    """Returns a module in which each part is a submodule, and all other nodes stay."""
    part_of = {n: k for k, nodes in enumerate(partitions) for n in nodes}
    for nodes in partitions:
        if not validate_partition(nodes):
            raise AssertionError("Invalid partition, found dependency cycles")
    pieces = split_module(gm, gm, lambda n: f"{prefix}{part_of[n]}" if n in part_of else f"single_{n.name}")
    graph, values = Graph(), {}
    modules: dict[str, Any] = {}
    for node in pieces.graph.nodes:
        name = str(node.target).removeprefix("submod_") if node.op == "call_module" else ""
        if node.op == "call_module" and name.startswith("single_"):
            inner = pieces.get_submodule(node.target)
            results = _inlined(inner, graph, [values[n] for n in node.args])
            values[node] = results
            modules |= {
                n.target: getattr_of(gm, n.target)
                for n in inner.graph.nodes
                if n.op in ("get_attr", "call_module")
            }
        elif node.op == "call_module":
            modules[name] = pieces.get_submodule(node.target)
            values[node] = graph.call_module(name, tuple(values[n] for n in node.args))
        elif node.op == "call_function" and isinstance(values.get(node.args[0]), tuple):
            values[node] = values[node.args[0]][node.args[1]]
        else:
            values[node] = graph.node_copy(node, lambda n: values[n])
            if node.op == "get_attr":
                modules[node.target] = getattr_of(gm, node.target)
    return GraphModule(modules, graph)


def _inlined(inner: GraphModule, graph: Graph, inputs: list[Any]) -> Any:
    arguments, values = iter(inputs), {}
    for n in inner.graph.nodes:
        if n.op == "placeholder":
            values[n] = next(arguments)
        elif n.op == "output":
            out = n.args[0]
            return tuple(values[x] for x in out) if isinstance(out, tuple) else values[out]
        else:
            values[n] = graph.node_copy(n, lambda x: values[x])
    return None


def getattr_of(m: Any, path: str) -> Any:
    """Returns a member of a module by its path."""
    for part in path.split("."):
        m = getattr(m, part)
    return m
