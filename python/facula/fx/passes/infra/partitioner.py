"""Finds the largest parts of a graph that a backend supports, and makes them submodules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...graph_module import GraphModule
from ...node import Node, _get_qualified_name
from ..operator_support import OperatorSupportBase
from ..tools_common import CALLABLE_NODE_OPS
from ..utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """A set of nodes, in the order of the graph."""

    def __init__(self, id: int | None = None, nodes: Iterable[Node] | None = None) -> None:
        self.id = id
        self.nodes: dict[Node, int | None] = dict.fromkeys(nodes or ())

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        del self.nodes[node]

    def size(self) -> int:
        return len(self.nodes)


def _name_of(n: Node) -> str:
    return n.target if isinstance(n.target, str) else _get_qualified_name(n.target)


class CapabilityBasedPartitioner:
    """Partitions a graph by what ``operator_support`` supports. No part depends on itself through other
    nodes.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []

    def is_supported(self, node: Node) -> bool:
        modules = dict(self.graph_module.named_modules())
        return node.op in CALLABLE_NODE_OPS and self.operator_support.is_node_supported(modules, node)

    def propose_partitions(self) -> list[Partition]:
        """Returns the parts: each node joins the latest part that neither precedes nor follows it through a
        node outside.
        """
        modules = dict(self.graph_module.named_modules())
        part_of: dict[Node, int] = {}
        parts: dict[int, list[Node]] = {}
        reaches: dict[Node, set[int]] = {}  # parts that precede a node through a node that is outside of them
        for node in self.graph_module.graph.nodes:
            before: set[int] = set()
            direct: set[int] = set()
            for n in node.all_input_nodes:
                before |= reaches[n]
                if n in part_of:
                    direct.add(part_of[n])
            if node.op in CALLABLE_NODE_OPS and self.operator_support.is_node_supported(modules, node):
                key = self._joined(parts, reaches, before, direct)
                part_of[node] = key
                parts.setdefault(key, []).append(node)
                before |= direct - {key}
                for member in parts[key]:
                    reaches.setdefault(member, set()).update(before)
            else:
                before |= direct
            reaches[node] = reaches.get(node, set()) | before
        return [Partition(k, nodes) for k, nodes in parts.items() if self._is_large_enough(nodes)]

    def _joined(self, parts: dict, reaches: dict, before: set[int], direct: set[int]) -> int:
        for key in sorted(parts, reverse=True):
            after = any(key in reaches[m] for other in direct | before if other != key for m in parts[other])
            if key not in before and not after:
                return key
        return len(parts)

    def _is_large_enough(self, nodes: list[Node]) -> bool:
        computing = [n for n in nodes if _name_of(n) not in self.non_compute_ops]
        single = len(computing) <= 1 and not any(
            _name_of(n) in self.allowed_single_node_partition_ops for n in computing
        )
        return bool(nodes) and (self.allows_single_node_partition or not single)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Removes from each part the nodes of ``non_compute_ops`` at its beginning and end, before and
        after which it computes nothing.
        """
        for partition in partitions:
            for inputs in (True, False):
                self._peel(partition, inputs)

    def _peel(self, partition: Partition, inputs: bool) -> None:
        edge = True
        while edge:
            edge = False
            for n in list(partition.nodes):
                near = n.all_input_nodes if inputs else n.users
                if _name_of(n) in self.non_compute_ops and not any(i in partition.nodes for i in near):
                    partition.remove_node(n)
                    edge = True

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Makes each part a submodule ``fused_0``, ``fused_1``, ..."""
        return fuse_by_partitions(self.graph_module, [p.nodes for p in partitions], prefix)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        return self.fuse_partitions(self.propose_partitions(), prefix)
