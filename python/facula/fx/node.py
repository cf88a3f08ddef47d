from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["Argument", "Node", "has_side_effect", "map_aggregate", "map_arg"]

Argument = Any


def _untraced(name: str) -> NoReturn:
    raise NotImplementedError(f"{name}: programs are not traced into graphs of operators yet")


class Node:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _untraced("fx.Node")


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """``fn`` of everything in tuples, lists, dicts and slices, in the like of them.

    >>> facula.fx.node.map_aggregate(([1, 2], {"a": 3}), lambda x: -x)
    ([-1, -2], {'a': -3})
    """
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """``fn`` of every Node in such containers."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


_side_effects: set[Callable] = set()  # functions whose calls a graph would keep, though nobody reads them


def has_side_effect(fn: Callable) -> Callable:
    """Marks a function whose calls must stay in a graph: gives it back."""
    _side_effects.add(fn)
    return fn
