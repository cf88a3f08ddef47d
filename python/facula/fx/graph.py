from __future__ import annotations

from typing import Any

from ..nn.modules.module import Module
from .node import _untraced

__all__ = ["Graph", "GraphModule", "Interpreter"]


class Graph:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _untraced("fx.Graph")


class GraphModule(Module):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _untraced("fx.GraphModule")


class Interpreter:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _untraced("fx.Interpreter")
