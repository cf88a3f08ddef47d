"""Parts of graphs as modules, and comparison of graphs."""

from __future__ import annotations

from typing import Any

from ....nn import Module
from ...graph import Graph
from ...graph_module import GraphModule
from .fuser_utils import getattr_of
from .matcher_utils import SubgraphMatcher

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module that holds submodules by name."""

    def __init__(self, d: dict[str, Module]) -> None:
        super().__init__()
        for k, v in d.items():
            self.add_module(k, v)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """Returns a module of ``subgraph`` with the members of ``gm`` that it uses, and the names in ``gm``
    of these by their names ``comp_name.target``.
    """
    members: dict[str, Any] = {}
    names: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        names[f"{comp_name}.{node.target}"] = node.target
        members[node.target] = getattr_of(gm, node.target)
    return GraphModule(members, subgraph, class_name), names


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Returns whether two graphs compute the same by the same calls."""
    matcher = SubgraphMatcher(left, match_output=True, match_placeholder=True)
    return len(matcher.match(right)) > 0
