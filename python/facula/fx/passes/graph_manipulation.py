"""Sizes of the results and parameters of nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..graph_module import GraphModule
from ..node import Node, map_aggregate
from .shape_prop import ShapeProp, TensorMetadata

__all__ = [
    "get_size_of_all_nodes",
    "get_size_of_node",
    "get_tensor_meta",
    "replace_target_nodes_with",
    "size_bytes",
]


class size_bytes(NamedTuple):
    """Bytes of a node's result, and of that and its module's parameters and buffers."""

    output_size: int
    total_size: int


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Any, new_op: str, new_target: Any
) -> None:
    """Lets the nodes of one kind and target call another target."""
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            node.op, node.target = new_op, new_target
    fx_module.graph.lint()
    fx_module.recompile()


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Any] | None = None) -> None:
    """Records ``size_bytes`` of each node but the output as an attribute; ``args`` are example inputs."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> Any:
    """Returns what ShapeProp recorded; RuntimeError if it did not run."""
    meta = node.meta.get("tensor_meta")
    if not meta:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run."
        )
    return meta


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """Returns the bytes of a node's result and of its module's parameters and buffers."""
    total = 0
    if node.op == "call_module":
        module = fx_module.get_submodule(node.target)
        total += sum(t.numel() * t.element_size() for t in (*module.parameters(), *module.buffers()))
    output = 0

    def add(meta: Any) -> Any:
        nonlocal output
        if isinstance(meta, TensorMetadata):
            count = 1
            for n in meta.shape:
                count *= n
            output += count * meta.dtype.itemsize
        return meta

    meta = get_tensor_meta(node)
    add(meta) if isinstance(meta, TensorMetadata) else map_aggregate(tuple(meta), add)
    return size_bytes(output, total + output)
