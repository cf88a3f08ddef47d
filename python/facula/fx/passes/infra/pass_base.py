"""The base class of passes."""

from __future__ import annotations

import abc
from typing import NamedTuple

from ...graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module after a pass, and whether the pass changed it."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass: ``call`` changes a module, after ``requires`` and before ``ensures`` have checked it."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None: ...

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raises if the pass cannot run on the module."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raises if the pass has not done what it promises."""
