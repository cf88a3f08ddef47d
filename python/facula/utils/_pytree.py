"""Containers as trees: their leaves, and the same containers with other leaves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple


class NodeDef(NamedTuple):
    """How a container is taken apart, ``x -> (items, context)``, and made: ``(items, context) -> x``."""

    type: Any
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Any, Any], Any]


SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(cls: Any, flatten_fn: Callable, unflatten_fn: Callable, **names: Any) -> None:
    """Makes a class a container of trees. ``names``, for saved programs in PyTorch, are taken and ignored.

    ValueError if it is one already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node. ")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _children(x: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
    """A container's items, and what makes the like of it from others; None for a leaf."""
    kind = type(x)
    if kind in SUPPORTED_NODES:
        node = SUPPORTED_NODES[kind]
        found, context = node.flatten_fn(x)
        return list(found), lambda items: node.unflatten_fn(items, context)
    if kind in (dict, OrderedDict):
        return list(x.values()), lambda items: kind(zip(x.keys(), items))
    if kind in (list, tuple):
        return list(x), kind
    if isinstance(x, tuple) and hasattr(kind, "n_sequence_fields"):  # results of operators that have names
        return list(x), kind
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return list(x), lambda items: kind(*items)
    return None


def tree_flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves, and the structure that tree_unflatten takes."""
    return tree_leaves(tree), tree


def tree_unflatten(leaves: list[Any], treespec: Any) -> Any:
    """A tree of this structure with these leaves."""
    rest = iter(leaves)
    return tree_map(lambda _: next(rest), treespec)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves from left to right."""
    found = _children(tree)
    return [tree] if found is None else [leaf for item in found[0] for leaf in tree_leaves(item)]


def tree_map(func: Callable, tree: Any, *rests: Any) -> Any:
    """The tree with func(leaf), or func of the leaves at one place of several trees.

    >>> from facula.utils._pytree import tree_map
    >>> tree_map(lambda x: x + 1, {"a": [1, 2], "b": (3,)})
    {'a': [2, 3], 'b': (4,)}
    """
    found = _children(tree)
    if found is None:
        return func(tree, *rests)
    others = [_children(r) for r in rests]
    if any(o is None or len(o[0]) != len(found[0]) for o in others):
        raise ValueError("tree_map: the trees have different structures")
    columns = zip(found[0], *(o[0] for o in others if o is not None))
    return found[1]([tree_map(func, *column) for column in columns])


def tree_map_only(kind: Any, func: Callable, tree: Any) -> Any:
    """tree_map on the leaves of a type; others stay."""
    return tree_map(lambda x: func(x) if isinstance(x, kind) else x, tree)


def tree_any(pred: Callable, tree: Any) -> bool:
    """Does the condition hold for a leaf?"""
    return any(map(pred, tree_leaves(tree)))


def tree_all(pred: Callable, tree: Any) -> bool:
    """Does the condition hold for every leaf?"""
    return all(map(pred, tree_leaves(tree)))
