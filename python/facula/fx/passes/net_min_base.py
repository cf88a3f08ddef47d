"""Finds the nodes of a graph for which two ways of running it give different results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph import Graph
from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node
from .tools_common import CALLABLE_NODE_OPS

__all__ = ["FxNetMinimizerBadModuleError", "FxNetMinimizerResultMismatchError", "FxNetMinimizerRunFuncError"]


class FxNetMinimizerBadModuleError(Exception):
    """A part cannot be made a module."""


class FxNetMinimizerRunFuncError(Exception):
    """One of the two ways of running raises."""


class FxNetMinimizerResultMismatchError(Exception):
    """Both ways give different results."""


class _MinimizerSettingBase:
    """Settings: ``traverse_method`` is "sequential" (node by node), "block" (the range is halved) or
    "accumulate" (longer and longer beginnings of the range).
    """

    def __init__(
        self,
        accumulate_error: bool = False,
        traverse_method: str = "sequential",
        find_all: bool = False,
        **more: Any,
    ) -> None:
        if traverse_method not in ("sequential", "block", "binary", "accumulate"):
            raise NotImplementedError(f"minimizer: traverse_method={traverse_method!r} is not supported")
        self.accumulate_error, self.traverse_method, self.find_all = (
            accumulate_error,
            traverse_method,
            find_all,
        )


class _Values(Interpreter):
    """Runs a module and keeps the values of all nodes."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)


class _MinimizerBase:
    """Subclasses define ``run_a`` and ``run_b``, which run a module with inputs in two ways. ``compare_fn(a,
    b, names)`` returns a number and whether the results agree.
    """

    def __init__(
        self,
        module: GraphModule,
        sample_input: Sequence[Any],
        compare_fn: Callable[[Any, Any, Any], tuple[float, bool]],
        settings: _MinimizerSettingBase | None = None,
        module_exporter: Any = None,
        exclusions: Any = None,
    ) -> None:
        self.module, self.sample_input, self.compare_fn = module, sample_input, compare_fn
        self.settings = settings or _MinimizerSettingBase()
        self.exclusions = exclusions
        self.results: dict[Any, float] = {}
        values = _Values(module)
        values.run(*sample_input)
        self.values = values.env

    def run_a(self, mod: GraphModule, inputs: Sequence[Any], report_idx: int = -1) -> Any:
        raise RuntimeError("run_a() is not implemented.")

    def run_b(self, mod: GraphModule, inputs: Sequence[Any], report_idx: int = -1) -> Any:
        raise RuntimeError("run_b() is not implemented.")

    def run_nodes(self, start: str | None = None, end: str | None = None) -> None:
        """Compares the results of a range of nodes. Raises FxNetMinimizerResultMismatchError if they
        differ.
        """
        self._compare(self._range(start, end))

    def minimize(self, start: str | None = None, end: str | None = None, **options: Any) -> set[Node]:
        """Returns the nodes that make a difference, the first one unless ``find_all``."""
        nodes = self._range(start, end)
        if self.settings.traverse_method in ("block", "binary"):
            return self._halved(nodes)
        culprits: set[Node] = set()
        for k, node in enumerate(nodes):
            part = nodes[: k + 1] if self.settings.traverse_method == "accumulate" else [node]
            if self._differs(part):
                culprits.add(node)
                if not self.settings.find_all:
                    break
        return culprits

    def _halved(self, nodes: list[Node]) -> set[Node]:
        if not nodes or not self._differs(nodes):
            return set()
        if len(nodes) == 1:
            return set(nodes)
        middle = len(nodes) // 2
        culprits = self._halved(nodes[:middle])
        if culprits and not self.settings.find_all:
            return culprits
        return culprits | self._halved(nodes[middle:]) or set(nodes)

    def _differs(self, nodes: list[Node]) -> bool:
        try:
            self._compare(nodes)
        except (FxNetMinimizerResultMismatchError, FxNetMinimizerRunFuncError):
            return True
        return False

    def _range(self, start: str | None, end: str | None) -> list[Node]:
        nodes = [n for n in self.module.graph.nodes if n.op in CALLABLE_NODE_OPS]
        names = [n.name for n in nodes]
        first = 0 if start is None else names.index(start)
        last = len(names) - 1 if end is None else names.index(end)
        return nodes[first : last + 1]

    def _part(self, nodes: list[Node]) -> tuple[GraphModule, list[Node], list[Node]]:
        """Returns nodes as a module, the nodes outside that it reads, and its results."""
        graph, values, inside = Graph(), {}, set(nodes)
        inputs = list(
            dict.fromkeys(
                i for n in nodes for i in n.all_input_nodes if i not in inside and i.op != "get_attr"
            )
        )
        for i in inputs:
            values[i] = graph.placeholder(i.name)
        for n in nodes:
            for i in n.all_input_nodes:
                if i.op == "get_attr" and i not in values:
                    values[i] = graph.get_attr(i.target)
            values[n] = graph.node_copy(n, lambda x: values[x])
        outputs = [n for n in nodes if any(u not in inside for u in n.users) or not n.users]
        graph.output(tuple(values[n] for n in outputs))
        return GraphModule(self.module, graph), inputs, outputs

    def _compare(self, nodes: list[Node]) -> None:
        module, inputs, outputs = self._part(nodes)
        tensors = [self.values[i] for i in inputs]
        names = tuple(n.name for n in outputs)
        try:
            a, b = self.run_a(module, tensors), self.run_b(module, tensors)
        except Exception as e:
            raise FxNetMinimizerRunFuncError(f"Exception raised when running {names}: {e}") from e
        number, agree = self.compare_fn(a, b, names)
        self.results[names] = number
        if not agree:
            raise FxNetMinimizerResultMismatchError(f"Result mismatch for {names}: {number}")
