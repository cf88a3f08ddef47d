"""Replaces the subgraphs that match a pattern."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule, _assign
from .node import Node
from .passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """A match: the pattern's last node there, and the nodes that correspond to the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A match, and the nodes that replace it."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def _graph_of(f: Any) -> Graph:
    if isinstance(f, GraphModule):
        return f.graph
    return f if isinstance(f, Graph) else symbolic_trace(f).graph


def _take_members(gm: GraphModule, replacement: Any) -> None:
    """Copies the objects that the replacement's nodes name to the module; removes those that no node
    names any more.
    """
    gm.delete_all_unused_submodules()
    if not isinstance(replacement, GraphModule):
        return
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        owner: Any = gm
        try:
            for part in node.target.split("."):
                owner = getattr(owner, part)
        except AttributeError:
            member: Any = replacement
            for part in node.target.split("."):
                member = getattr(member, part, None)
            if member is None:
                raise RuntimeError(
                    f'Attempted to create a "{node.op}" node during subgraph rewriting with target '
                    f"{node.target}, but the referenced attribute does not exist in the replacement "
                    "GraphModule"
                ) from None
            _assign(copy.deepcopy(member), gm, node.target)
    gm.graph.lint()


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replaces all disjoint subgraphs that match ``pattern`` by ``replacement``; both are functions or
    GraphModules with the same inputs. Inner values of a match must have no other users.

    >>> gm = facula.fx.symbolic_trace(lambda x: facula.relu(x).neg() + 1)
    >>> found = facula.fx.replace_pattern(gm, lambda x: facula.relu(x).neg(), lambda x: -x)
    >>> print(len(found), gm.code.strip())
    1 def forward(self, x):
        neg_1 = -x;  x = None
        add = neg_1 + 1;  neg_1 = None
        return add
    """
    return [Match(m.anchor, m.nodes_map) for m in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """Like ``replace_pattern``, for the matches for which all ``match_filters(match, graph,
    pattern_graph)`` are true; ``replacement_callback``, with the same arguments, may create each
    replacement.
    """
    graph, pattern_graph = gm.graph, _graph_of(pattern)
    matcher = SubgraphMatcher(
        pattern_graph,
        match_output=False,
        match_placeholder=False,
        remove_overlapping_matches=True,
        ignore_literals=ignore_literals,
    )
    matches = [
        m
        for m in matcher.match(graph, node_name_match=node_name_match)
        if all(f(m, graph, pattern_graph) for f in match_filters or ())
    ]
    if replacement is not None:
        common = _graph_of(replacement)
    elif replacement_callback is None:
        raise AssertionError("Must provide either a replacement GraphModule or a replacement callback")
    done: list[ReplacedPatterns] = []
    replaced: dict[Node, Node] = {}  # erased nodes of earlier matches, and their replacements
    for match in matches:
        new = replacement_callback(match, graph, pattern_graph) if replacement_callback else common
        done.append(_put(graph, match, new, replaced, pattern_graph))
    gm.recompile()
    _take_members(gm, replacement)
    return done


def _put(
    graph: Graph, match: InternalMatch, new: Graph, replaced: dict[Node, Node], pattern: Graph
) -> ReplacedPatterns:
    inputs = [n for n in new.nodes if n.op == "placeholder"]
    if len(match.placeholder_nodes) != len(inputs):
        raise AssertionError(
            f"the pattern has {len(match.placeholder_nodes)} inputs, its replacement {len(inputs)}"
        )
    values: dict[Node, Any] = {
        r: replaced.get(g, g) if isinstance(g, Node) else g for r, g in zip(inputs, match.placeholder_nodes)
    }
    users = {u for n in match.returning_nodes for u in n.users}
    order = {n: k for k, n in enumerate(graph.nodes)}
    if users:
        first = min(users, key=lambda n: order[n])
    else:
        first = match.returning_nodes[0].next if match.returning_nodes else graph._root
    before = set(graph.nodes)
    with graph.inserting_before(first):
        result = graph.graph_copy(new, values)
    results = (result,) if isinstance(result, Node) else tuple(result or ())
    if len(match.returning_nodes) != len(results):
        raise AssertionError(
            f"the pattern returns {len(match.returning_nodes)} values, its replacement {len(results)}"
        )
    for old, now in zip(match.returning_nodes, results):
        old.replace_all_uses_with(now)
        replaced[old] = now
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output") and node in match.nodes_map:
            replaced_node = match.nodes_map[node]
            if not replaced_node._erased:
                graph.erase_node(replaced_node)
    added = [n for n in graph.nodes if n not in before]
    return ReplacedPatterns(match.anchors[0], match.nodes_map, added)
