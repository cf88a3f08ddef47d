"""The calls of an exported graph by the functions and modules that they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...graph import Graph
from ...node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The calls that one use of a function or module has become.

    Attributes:
        nodes: the calls and the parameters that they read.
        source: the function or class.
        input_nodes, output_nodes: the values that enter, and those that leave.
        params: the nodes of parameters.
    """

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def partition_of(node: Node, source: Any) -> SourcePartition:
    """Returns the partition of a call."""
    params = [n for n in node.all_input_nodes if n.op == "get_attr"]
    inputs = [n for n in node.all_input_nodes if n.op != "get_attr"]
    return SourcePartition([*params, node], source, inputs, [node], params)


def get_source_partitions(
    graph: Graph, wanted_sources: list[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """Returns the partitions of each of these functions and modules.

    Modules and functions that become the same operator cannot be told apart in a graph of operators: a call
    belongs to the first of ``wanted_sources`` that becomes its operator.
    """
    from ....ao.quantization.pt2e.graph_utils import SOURCES

    partitions: dict[Any, list[SourcePartition]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or (filter_fn is not None and not filter_fn(node)):
            continue
        sources = SOURCES.get(node.target, ()) if node.target.__hash__ else ()
        source = next((s for s in wanted_sources if s in sources), None)
        if source is not None:
            partitions.setdefault(source, []).append(partition_of(node, source))
    return partitions


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Returns whether a value of the first partition enters the second one."""
    return any(n in subgraph1.nodes for node in subgraph2.nodes for n in node.all_input_nodes)
