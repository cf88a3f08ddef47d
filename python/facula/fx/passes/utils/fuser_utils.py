"""Makes parts of a graph submodules."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from ...graph import Graph
from ...graph_module import GraphModule
from ...node import Node
from ..split_module import split_module

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "topo_sort",
    "validate_partition",
]


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


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: list[Node],
    module_name: str,
    partition_lookup_table: Any = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """Returns a module that computes ``nodes``, which are in order, the nodes that are its inputs, and those
    that others read. The graph stays as it is.
    """
    if not all(n.graph is gm.graph for n in nodes):
        raise AssertionError(f"a node does not belong to the graph of {gm._get_name()}")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    inside = set(nodes)
    graph, values = Graph(), {}
    inputs: list[Node] = []
    for n in nodes:
        for i in n.all_input_nodes:
            if i in inside or i in values:
                continue
            if i.op == "get_attr":
                values[i] = graph.node_copy(i)
                continue
            inputs.append(i)
            values[i] = graph.placeholder(i.name, type_expr=i.type)
            values[i].meta = dict(i.meta)
        values[n] = graph.node_copy(n, lambda x: values[x])
    outputs = tuple(n for n in nodes if any(u not in inside for u in n.users))
    results = tuple(values[n] for n in outputs)
    graph.output(results if always_return_tuple or len(results) != 1 else results[0])
    graph.lint()
    return GraphModule(gm, graph, class_name=module_name), tuple(inputs), outputs


def insert_subgm(
    gm: GraphModule, sub_gm: GraphModule, orig_inputs: tuple[Node, ...], orig_outputs: tuple[Node, ...]
) -> GraphModule:
    """Lets a call of ``sub_gm`` compute ``orig_outputs``, whose nodes stay, unread."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    with gm.graph.inserting_after(max(orig_outputs, key=list(gm.graph.nodes).index)):
        call = gm.graph.call_module(name, args=orig_inputs, kwargs=None)
        last: Node = call
    if len(orig_outputs) == 1 and not isinstance(sub_gm.graph.output_node().args[0], tuple):
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return gm
    for k, n in enumerate(orig_outputs):
        with gm.graph.inserting_after(last):
            last = gm.graph.call_function(operator.getitem, (call, k))
        n.replace_all_uses_with(last, propagate_meta=True)
    call.meta["val"] = tuple(n.meta.get("val") for n in orig_outputs)
    return gm


def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Erases nodes, which are in order."""
    for n in reversed(nodes):
        gm.graph.erase_node(n)


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
