"""Splits a graph into submodules."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg

__all__ = ["split_module"]


def split_module(
    m: GraphModule,
    root_m: Any,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    *,
    partition_affix: str | None = None,
    **options: Any,
) -> GraphModule:
    """Returns a module with submodules ``submod_0``, ..., each with the nodes of one key of
    ``split_callback``.

    Raises RuntimeError if two parts depend on each other.
    """
    if options:
        raise NotImplementedError(f"split_module: {', '.join(options)} are not there yet")
    if keep_original_order:
        raise NotImplementedError("split_module: keep_original_order=True is not there yet")
    affix = f"_{partition_affix}" if partition_affix else ""
    parts: dict[Any, list[Node]] = {}
    part_of: dict[Node, Any] = {}
    for node in m.graph.nodes:
        if node.op not in ("placeholder", "output", "get_attr"):
            part_of[node] = split_callback(node)
            parts.setdefault(part_of[node], []).append(node)
    needs = {
        k: {part_of[i] for n in ns for i in n.all_input_nodes if i in part_of} - {k}
        for k, ns in parts.items()
    }
    order: list[Any] = []
    while len(order) < len(parts):
        ready = [k for k in parts if k not in order and needs[k] <= set(order)]
        if not ready:
            raise RuntimeError("cycle exists between partitions!")
        order.append(ready[0])

    base = Graph(tracer_cls=m.graph._tracer_cls)
    values: dict[Node, Any] = {n: base.node_copy(n) for n in m.graph.nodes if n.op == "placeholder"}
    modules: dict[str, Any] = {}
    for key in order:
        name = f"submod{affix}_{key}"
        inputs, outputs = _crossings(m.graph, part_of, key)
        inside = Graph(tracer_cls=m.graph._tracer_cls)
        local = {i: inside.placeholder(i.name, type_expr=i.type) for i in inputs}
        for node in parts[key]:
            for i in node.all_input_nodes:
                if i.op == "get_attr" and i not in local:
                    local[i] = inside.get_attr(i.target)
            args, kwargs = map_arg((node.args, node.kwargs), local.__getitem__)
            name_there = node.name if keep_original_node_name else None
            local[node] = inside.create_node(node.op, node.target, args, dict(kwargs), name_there, node.type)
            local[node].meta = node.meta.copy()
            if qualname_map is not None and node.op == "call_module":
                qualname_map[f"{name}.{node.target}"] = node.target
        results = tuple(local[n] for n in outputs)
        inside.output(results[0] if len(results) == 1 else results)
        modules[name] = GraphModule(m, inside)
        call = base.call_module(name, tuple(values[i] for i in inputs))
        for k, n in enumerate(outputs):
            values[n] = call if len(outputs) == 1 else base.call_function(operator.getitem, (call, k))
    result = m.graph.output_node()
    for n in result.all_input_nodes:
        if n.op == "get_attr":
            values[n] = base.get_attr(n.target)
            modules[n.target] = _member(m, n.target)
    base.output(map_arg(result.args[0], lambda n: values[n]), result.type)
    return GraphModule(modules, base)


def _crossings(graph: Graph, part_of: dict[Node, Any], key: Any) -> tuple[list[Node], list[Node]]:
    """Returns the values that a part reads from outside, and those that others read from it, in order of
    use.
    """
    inputs: dict[Node, None] = {}
    outputs: dict[Node, None] = {}
    for user in graph.nodes:
        mine = part_of.get(user) == key and user in part_of
        for n in user.all_input_nodes:
            here = n in part_of and part_of[n] == key
            if mine and not here and n.op != "get_attr":
                inputs[n] = None
            elif here and not mine:
                outputs[n] = None
    return list(inputs), list(outputs)


def _member(m: Any, path: str) -> Any:
    for part in path.split("."):
        m = getattr(m, part)
    return m
