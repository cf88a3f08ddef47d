"""Splits a graph into parts that a backend supports and parts that it does not, in the order of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..graph_module import GraphModule
from ..node import Node
from .operator_support import OperatorSupportBase
from .split_module import split_module
from .tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    get_node_target,
    is_node_output_tensor,
)

__all__ = [
    "FxNetAccNodesFinder",
    "FxNetSplitterInternalError",
    "SplitResult",
    "Subgraph",
    "_SplitterBase",
    "_SplitterSettingBase",
    "generate_inputs_for_submodules",
]


class FxNetSplitterInternalError(Exception):
    """A part that cannot be split off."""


class _SplitterSettingBase:
    """Settings: parts with fewer than ``min_acc_module_size`` nodes are not given to the backend."""

    def __init__(
        self,
        min_acc_module_size: int = 1,
        skip_fusion: bool = False,
        allow_non_tensor: bool = False,
        **more: Any,
    ) -> None:
        self.min_acc_module_size, self.skip_fusion = min_acc_module_size, skip_fusion
        self.allow_non_tensor = allow_non_tensor
        if more:
            raise NotImplementedError(f"splitter: the settings {', '.join(more)} are not supported")


class Subgraph(NamedTuple):
    """A part: whether the backend runs it, and its nodes."""

    is_acc: bool
    nodes: list[Node]


class SplitResult(NamedTuple):
    """A module of parts, the inputs of each part for the sample, and the prefix of names of other parts."""

    split_module: GraphModule
    submodule_inputs: dict[str, Any]
    non_acc_submodule_prefix: str


def generate_inputs_for_submodules(
    model: Any, inputs: Sequence[Any], target_submodules: Iterable[str], deepcopy: bool = False
) -> dict[str, Any]:
    """Runs a model and returns, by name, what the submodules are called with."""
    import copy

    from ...autograd import no_grad

    arguments: dict[str, Any] = {}
    handles = []
    for name, module in model.named_modules():
        if name in target_submodules:

            def note(module: Any, args: Any, name: str = name) -> None:
                arguments[name] = copy.deepcopy(args) if deepcopy else args

            handles.append(module.register_forward_pre_hook(note))
    try:
        with no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return arguments


class FxNetAccNodesFinder:
    """Finds the nodes that the backend supports. Without ``allow_non_tensor``, they exchange only tensors
    with other nodes; ShapeProp has to have recorded the types.
    """

    def __init__(
        self, module: GraphModule, operator_support: OperatorSupportBase, allow_non_tensor: bool
    ) -> None:
        self.module, self.operator_support, self.allow_non_tensor = module, operator_support, allow_non_tensor

    def __call__(self) -> set[Node]:
        modules = dict(self.module.named_modules())
        self.acc_nodes = {
            n
            for n in self.module.graph.nodes
            if n.op in CALLABLE_NODE_OPS and self.operator_support.is_node_supported(modules, n)
        }
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        return self.acc_nodes

    def reduce_acc_nodes_non_tensor_input_helper(self, cpu_worklist: list[Node]) -> None:
        """Excludes the nodes that read what is no tensor from these nodes, and so on."""
        while cpu_worklist:
            node = cpu_worklist.pop()
            for user in node.users:
                if user in self.acc_nodes:
                    self.acc_nodes.remove(user)
                    if not is_node_output_tensor(user):
                        cpu_worklist.append(user)

    def reduce_acc_nodes_non_tensor_input(self) -> None:
        """Excludes the nodes that read what is no tensor from nodes that are not supported."""
        self.reduce_acc_nodes_non_tensor_input_helper(
            [
                n
                for n in self.module.graph.nodes
                if n.op in CALLABLE_NODE_OPS and n not in self.acc_nodes and not is_node_output_tensor(n)
            ]
        )

    def reduce_acc_nodes_non_tensor_output(self) -> None:
        """Excludes the nodes whose result is no tensor and read by a node that is not supported."""
        while True:
            crossing = [
                n
                for n in self.acc_nodes
                if not is_node_output_tensor(n) and any(u not in self.acc_nodes for u in n.users)
            ]
            if not crossing:
                return
            self.acc_nodes.difference_update(crossing)
            self.reduce_acc_nodes_non_tensor_input_helper(crossing)


class _SplitterBase:
    """Splits a module: ``splitter()`` returns a module with submodules ``_run_on_acc_0``, ``_run_on_cpu_1``,
    ...
    """

    def __init__(
        self,
        module: GraphModule,
        sample_input: Sequence[Any],
        operator_support: OperatorSupportBase,
        settings: _SplitterSettingBase | None = None,
        non_acc_submodule_name: str = "_run_on_cpu_",
        **options: Any,
    ) -> None:
        from .shape_prop import ShapeProp

        self.module, self.sample_input, self.operator_support = module, sample_input, operator_support
        self.settings = settings or _SplitterSettingBase()
        self.non_acc_submodule_name = non_acc_submodule_name
        ShapeProp(module).propagate(*sample_input)
        self.acc_nodes = FxNetAccNodesFinder(module, operator_support, self.settings.allow_non_tensor)()
        self.fusions = {} if self.settings.skip_fusion else FxNetAccFusionsFinder(module, self.acc_nodes)()

    def node_support_preview(self, dump_graph: bool = False) -> str:
        """Returns the supported and the other functions with their numbers."""
        modules = dict(self.module.named_modules())
        lines = ["Supported node types in the model:"]
        for supported in (True, False):
            counts: dict[str, int] = {}
            for n in self.module.graph.nodes:
                if n.op in CALLABLE_NODE_OPS and (n in self.acc_nodes) == supported:
                    name = get_node_target(modules, n)
                    counts[name] = counts.get(name, 0) + 1
            lines += [f"{name}: {count} node(s)" for name, count in sorted(counts.items())]
            if supported:
                lines.append("\nUnsupported node types in the model:")
        return "\n".join(lines)

    def put_nodes_into_subgraphs(self) -> list[Subgraph]:
        """Returns the parts, alternately unsupported and supported; a node stands as early as its arguments
        allow.
        """
        parts: list[Subgraph] = []
        level: dict[Node, int] = {}
        before: dict[Node, int] = {}
        while not level or level != before:  # until fusion groups have one level each
            before, level = level, self._levels(level)
        for k in range(max(level.values(), default=0) + 1):
            nodes = [n for n in self.module.graph.nodes if n.op in CALLABLE_NODE_OPS and level[n] == k]
            if nodes:
                parts.append(Subgraph(bool(k % 2), nodes))
        return self.remove_small_acc_subgraphs(parts)

    def _levels(self, former: dict[Node, int]) -> dict[Node, int]:
        """Returns the number of the part of each node; nodes of a fusion group are at least where others
        of it were before.
        """
        level: dict[Node, int] = {}
        for n in self.module.graph.nodes:
            if n.op not in CALLABLE_NODE_OPS:
                level[n] = 0
                continue
            is_acc = n in self.acc_nodes
            least = max((level[i] for i in n.all_input_nodes), default=0)
            least = max([least, *(former.get(i, 0) for i in self.fusions.get(n, ()))])
            level[n] = least + (least % 2 != is_acc)
        return level

    def remove_small_acc_subgraphs(self, subgraphs: list[Subgraph]) -> list[Subgraph]:
        parts: list[Subgraph] = []
        for part in subgraphs:
            is_acc = part.is_acc and len(part.nodes) >= self.settings.min_acc_module_size
            if parts and parts[-1].is_acc == is_acc:
                parts[-1].nodes.extend(part.nodes)
            else:
                parts.append(Subgraph(is_acc, list(part.nodes)))
        return parts

    def split_preview(self, dump_graph: bool = False) -> str:
        """Returns a description of the parts."""
        parts = self.put_nodes_into_subgraphs()
        acc = sum(p.is_acc for p in parts)
        lines = [
            f"After removing small acc subgraphs, total {acc} acc subgraphs and {len(parts) - acc} others:"
        ]
        lines += [f"{self._name(k, p)}: {len(p.nodes)} node(s)" for k, p in enumerate(parts)]
        return "\n".join(lines)

    def _name(self, k: int, part: Subgraph) -> str:
        return f"{'_run_on_acc_' if part.is_acc else self.non_acc_submodule_name}{k}"

    def generate_split_results(self) -> SplitResult:
        """Splits the module, and returns it with the inputs of its parts for the sample."""
        split = self()
        names = [name for name, _ in split.named_children()]
        inputs = generate_inputs_for_submodules(split, self.sample_input, names)
        return SplitResult(split, inputs, self.non_acc_submodule_name)

    def __call__(self) -> GraphModule:
        names = {n: self._name(k, p) for k, p in enumerate(self.put_nodes_into_subgraphs()) for n in p.nodes}
        split = split_module(self.module, self.module, names.__getitem__)
        modules = {}
        for n in split.graph.nodes:
            if n.op == "call_module":
                module = split.get_submodule(n.target)
                n.target = n.target.removeprefix("submod_")
                n._rename(n.target)
                modules[n.target] = module
            elif n.op == "get_attr":
                modules[n.target] = getattr(split, n.target)
        return GraphModule(modules, split.graph)
