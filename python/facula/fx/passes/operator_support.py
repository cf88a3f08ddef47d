"""Decides which nodes a backend supports."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...nn import Module
from ..node import Node
from .tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]

IsNodeSupported = Callable[[Mapping[str, Module], Node], bool]


class OperatorSupportBase(abc.ABC):
    """Decides whether a node is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool: ...


class OperatorSupport(OperatorSupportBase):
    """Support by the name of a node's function, method or module class, and possibly by the dtypes of its
    arguments: ``{name: None}``, or ``{name: (dtypes by position, dtypes by keyword)}``.
    """

    def __init__(self, support_dict: Mapping[str, Any] | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        if self._support_dict[target] is None:
            return True
        by_position, by_name = self._support_dict[target]
        positions = zip(by_position, node.args)
        names = ((dtypes, node.kwargs.get(name)) for name, dtypes in by_name.items())
        return all(
            self._get_arg_dtype(x) in dtypes for dtypes, x in (*positions, *names) if isinstance(x, Node)
        )

    @staticmethod
    def _get_arg_dtype(arg: Node) -> Any:
        meta = arg.meta.get("tensor_meta", arg.meta.get("val"))
        return getattr(meta, "dtype", None)


class _Function(OperatorSupportBase):
    def __init__(self, f: IsNodeSupported) -> None:
        self.f = f

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        return self.f(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """Wraps a function as an OperatorSupportBase."""
    return _Function(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what all of these support."""
    return _Function(lambda modules, node: all(s.is_node_supported(modules, node) for s in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what one of these supports."""
    return _Function(lambda modules, node: any(s.is_node_supported(modules, node) for s in op_support))


class OpSupports:
    """Common OperatorSupportBase objects."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        def supported(modules: Mapping[str, Module], node: Node) -> bool:
            return all(OperatorSupport._get_arg_dtype(n) != dtype for n in node.all_input_nodes)

        return create_op_support(supported)

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str] | Sequence[str]) -> OperatorSupportBase:
        return create_op_support(lambda modules, node: node.name not in disallow_set)
