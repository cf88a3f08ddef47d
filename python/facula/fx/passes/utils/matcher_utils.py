"""Finds the subgraphs that match a pattern."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .... import _C
from ...graph import Graph
from ...node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """A match: the nodes that correspond to the pattern's, its last nodes, inputs and results."""

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            self.anchors, self.nodes_map.copy(), self.placeholder_nodes.copy(), self.returning_nodes.copy()
        )


class SubgraphMatcher:
    """Searches for a pattern, whose placeholders match anything."""

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        for n in self.pattern_placeholder_nodes:
            if not n.users:
                raise AssertionError("SubgraphMatcher cannot be initialized with an pattern with dead code")
        output = pattern.output_node()
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        if match_output:
            self.pattern_anchors = [output]
        else:
            self.pattern_anchors = [n for n in self.pattern_returning_nodes if len(n.users) == 1]

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Returns the matches in the order of the graph; among overlapping ones only the first."""
        candidates = [
            [n for n in graph.nodes if self._same(a, n) and self._named(n, node_name_match)]
            for a in self.pattern_anchors
        ]
        matches: list[InternalMatch] = []
        self._extend(candidates, 0, InternalMatch(list(self.pattern_anchors)), matches)
        complete = []
        taken: set[Node] = set()
        for m in matches:
            inner = {
                v
                for k, v in m.nodes_map.items()
                if k.op not in ("placeholder", "output") and isinstance(v, Node)
            }
            if not self._contained(m, inner) or self.remove_overlapping_matches and inner & taken:
                continue
            taken |= inner
            m.placeholder_nodes = [m.nodes_map[p] for p in self.pattern_placeholder_nodes]
            m.returning_nodes = [m.nodes_map[p] for p in self.pattern_returning_nodes]
            m.name_node_map = {p.name: g for p, g in m.nodes_map.items()}
            complete.append(m)
        return complete

    def _named(self, n: Node, name: str) -> bool:
        return not name or name in n.name

    def _extend(self, candidates: list, k: int, so_far: InternalMatch, matches: list[InternalMatch]) -> None:
        """Finds all ways to match the anchors from the k-th on."""
        import copy

        if k == len(candidates):
            matches.append(so_far)
            return
        for node in candidates[k]:
            trial = copy.copy(so_far)
            if self._match(self.pattern_anchors[k], node, trial):
                self._extend(candidates, k + 1, trial, matches)

    def _same(self, p: Node, g: Node) -> bool:
        """Returns whether both nodes call the same target."""
        if not self.match_placeholder and p.op == "placeholder":
            return True
        if p.op != g.op:
            return False
        if p.op in ("placeholder", "output"):
            return True
        if p.op == "get_attr":
            return self._same_attribute(p, g)
        if p.op == "call_module":
            owners = p.graph.owning_module, g.graph.owning_module
            if None not in owners:
                return type(owners[0].get_submodule(p.target)) is type(owners[1].get_submodule(g.target))
        return p.target == g.target

    def _same_attribute(self, p: Node, g: Node) -> bool:
        values = []
        for n in (p, g):
            member: Any = n.graph.owning_module
            for part in n.target.split("."):
                member = getattr(member, part, None)
            values.append(member)
        if isinstance(values[0], _C.Tensor):
            return isinstance(values[1], _C.Tensor)
        return type(values[0]) is type(values[1])

    def _match(self, p: Any, g: Any, m: InternalMatch) -> bool:
        """Returns whether ``g`` matches ``p``, with all nodes that it depends on."""
        if not isinstance(p, Node):
            if isinstance(g, Node):
                return False
            if isinstance(p, (list, tuple)):
                return (
                    isinstance(g, (list, tuple))
                    and len(p) == len(g)
                    and all(self._match(a, b, m) for a, b in zip(p, g))
                )
            if isinstance(p, dict):
                return (
                    isinstance(g, dict)
                    and p.keys() == g.keys()
                    and all(self._match(p[k], g[k], m) for k in p)
                )
            return self.ignore_literals or type(p) is type(g) and p == g
        if p in m.nodes_map:
            return m.nodes_map[p] is g
        if p.op == "placeholder" and not self.match_placeholder:
            m.nodes_map[p] = g
            return True
        if not isinstance(g, Node) or g in m.nodes_map.values() or not self._same(p, g):
            return False
        saved = m.nodes_map.copy()
        m.nodes_map[p] = g
        both = self._arguments(p), self._arguments(g)
        if len(both[0]) == len(both[1]) and all(self._match(a, b, m) for a, b in zip(*both)):
            return True
        m.nodes_map = saved
        return False

    def _arguments(self, n: Node) -> list[Any]:
        if n.op in ("get_attr", "placeholder"):
            return []
        return [*n.args, *(n.kwargs[k] for k in sorted(n.kwargs)), tuple(sorted(n.kwargs))]

    def _contained(self, m: InternalMatch, inner: set[Node]) -> bool:
        """Returns whether inner values of the match have no other users."""
        for p, g in m.nodes_map.items():
            if p.op in ("placeholder", "output", "get_attr") or p in self.pattern_returning_nodes:
                continue
            if any(u not in inner for u in g.users):
                return False
        return True
