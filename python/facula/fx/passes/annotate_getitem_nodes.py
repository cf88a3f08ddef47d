"""Types of the items of tuples and lists."""

from __future__ import annotations

import operator
import typing

from ..graph import Graph

__all__ = ["annotate_getitem_nodes"]


def annotate_getitem_nodes(graph: Graph) -> None:
    """Gives ``operator.getitem`` nodes the type that follows from the annotated type of their sequence: of
    ``tuple[A, B]``, ``list[A]`` or a NamedTuple.
    """
    for node in graph.nodes:
        if node.op != "call_function" or node.target is not operator.getitem:
            continue
        sequence, index = node.args
        annotated = sequence.type
        if annotated is None or not isinstance(index, int):
            continue
        items, origin = typing.get_args(annotated), typing.get_origin(annotated)
        if isinstance(annotated, type) and hasattr(annotated, "_fields"):
            node.type = typing.get_type_hints(annotated).get(annotated._fields[index])
        elif origin is list and items or origin is tuple and items[1:] == (...,):
            node.type = items[0]
        elif origin is tuple and -len(items) <= index < len(items):
            node.type = items[index]
