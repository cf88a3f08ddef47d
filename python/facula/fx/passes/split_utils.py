"""Splits a graph by tags of its nodes."""

from __future__ import annotations

from typing import Any

from ...nn import Module
from ..graph_module import GraphModule
from .split_module import split_module

__all__ = ["getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: Any, name: str) -> Any:
    """Returns a member by its path; an item of a ModuleList by its number."""
    for layer in name.split("."):
        if hasattr(obj, layer):
            obj = getattr(obj, layer)
        elif isinstance(obj, list):
            obj = obj[int(layer)]
        else:
            return None
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Sets a member by its path."""
    *path, last = attr.split(".")
    for layer in path:
        obj = getattr(obj, layer)
    setattr(obj, last, value)


def split_by_tags(
    gm: Module,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """Returns a module with a submodule for each tag, in the order of ``tags``, of the nodes whose attribute
    ``tag`` is that. With ``return_fqn_mapping`` also the name in ``gm`` of each member of a part.

    Raises AssertionError if a node has no tag, and if a part depends on a later one.
    """
    if return_tuple:
        raise NotImplementedError("split_by_tags: return_tuple=True is not there")
    order = {tag: k for k, tag in enumerate(tags)}
    computing = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
    for n in computing:
        if getattr(n, "tag", None) not in order:
            raise AssertionError(f"node {n} has no tag of {tags}")
        for i in n.all_input_nodes:
            if i in computing and order[i.tag] > order[n.tag]:
                raise AssertionError(f"node {n} of the part {n.tag} reads {i} of the later part {i.tag}")
    names: dict[str, str] = {}
    split = split_module(gm, gm, lambda n: n.tag, names)
    members: dict[str, Any] = {}
    for n in split.graph.nodes:
        if n.op == "call_module":
            module, n.target = split.get_submodule(n.target), n.target.removeprefix("submod_")
            n._rename(n.target)
            members[n.target] = module
        elif n.op == "get_attr":
            members[n.target] = getattr_recursive(split, n.target)
    result = GraphModuleCls(members, split.graph)
    if not return_fqn_mapping:
        return result
    return result, {k.removeprefix("submod_"): v for k, v in names.items()}
