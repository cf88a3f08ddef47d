"""The bridge between graphs of programs (:mod:`facula.program`) and :class:`facula.fx.Graph`.

:func:`graph_of` returns the calls of a program as nodes, with operators of ``facula.ops``. The other
direction is :func:`facula.program.trace` of a GraphModule, which calls the operators again, as the parser of
saved programs does.

>>> p = facula.program.trace(lambda x, y: (x @ y).relu(), facula.ones(2, 3), facula.ones(3, 4))
>>> print(facula.fx._bridge.module_of(p).code.strip())
def forward(self, arg0_1, arg1_1):
    mm = facula.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = arg1_1 = None
    relu = facula.ops.aten.relu.default(mm);  mm = None
    return (relu,)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from .. import _C
from .._ops import _shown, ops
from .graph import Graph
from .graph_module import GraphModule
from .node import Node

__all__ = ["Lowered", "graph_of", "module_of", "size_text"]

_ARITHMETIC: dict[str, Callable] = {
    "add": operator.add,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": _C.sym_min,
    "max": _C.sym_max,
}
_SIGNS = {"add": " + ", "mul": "*", "floordiv": "//", "mod": " % "}


def size_text(size: Any) -> str:
    """Returns a size of a program's graph as text: ``"s0*4"``."""
    if not isinstance(size, tuple):
        return str(size)
    kind, *operands = size
    if kind == "symbol":
        return operands[0]
    a, b = map(size_text, operands)
    if kind in ("min", "max"):
        return f"{kind}({a}, {b})"
    return (
        f"{a} + {b}"
        if kind == "add"
        else f"({a}){_SIGNS[kind]}({b})"
        if " " in a + b
        else a + _SIGNS[kind] + b
    )


def size_value(size: Any, values: dict[str, int]) -> int:
    """Returns the number that a size of a program's graph has for these values of its symbols."""
    if not isinstance(size, tuple):
        return size
    kind, *operands = size
    if kind == "symbol":
        return values[operands[0]]
    a, b = (size_value(x, values) for x in operands)
    return {"min": min, "max": max}[kind](a, b) if kind in ("min", "max") else _ARITHMETIC[kind](a, b)


def symbols_of(size: Any) -> set[str]:
    """Returns the names of the symbols in a size of a program's graph."""
    if not isinstance(size, tuple):
        return set()
    return {size[1]} if size[0] == "symbol" else symbols_of(size[1]) | symbols_of(size[2])


class Lowered:
    """The conversion of one program: its graph, and the node of each input and output.

    Attributes:
        graph: the nodes, without an output node
        inputs: the placeholders of the program's inputs, those of captured tensors last
        outputs: by output of the program, its node or None
        mutated: (number of an input, node of its value after the call)
        constants: (name, tensor, module or object), read by ``get_attr`` nodes
        objects: by identity of an object of a C++ class: the node that has it
        symbols: name, value during the trace, least, most, whether it is determined only by running the
        program guards: (size, relation, size), on which the trace relied
    """

    def __init__(
        self,
        native: Any,
        names: Iterable[str] | None = None,
        graph: Graph | None = None,
        placeholders: Iterable[Node] | None = None,
        objects: dict[int, Node] | None = None,
    ) -> None:
        facts = _C.program_graph(native)
        self.facts = facts
        self.graph = Graph() if graph is None else graph
        self.symbols, self.guards = facts["symbols"], facts["guards"]
        self._hints = {name: hint for name, hint, *_ in self.symbols}
        self._nodes: dict[int, Any] = {}  # by number of the value: its node, or a number
        self._stands: dict[int, Any] = {}  # by number of the value: a tensor on meta like it
        self._sources: dict[
            str, tuple[Any, int]
        ] = {}  # by symbol: a node that has a size of this symbol, its dimension
        self._sizes: dict[Any, Any] = {}  # by size: its node
        self._numbers: dict[Any, Node] = {}  # by type and text of a number: its node as a tensor
        if placeholders is None:
            if names is None:
                names = [f"arg{k}_1" for k in range(len(facts["inputs"]))]
            placeholders = [self.graph.placeholder(name) for name in names]
        self.inputs = list(placeholders)
        for node, value in zip(self.inputs, facts["inputs"], strict=True):
            self._bind(node, value)
        self.constants: list[tuple[str, Any]] = []
        self.objects = dict(objects or {})
        for value, tensor, is_number in facts["constants"]:
            self._constant(value, tensor, is_number)
        for call in facts["nodes"]:
            self._call(*call)
        self.outputs = [self._value(x) for x in facts["outputs"]]
        self.mutated = [(number, self._nodes[value]) for number, value in facts["mutated"]]

    def _constant(self, facts: tuple, tensor: Any, is_number: bool) -> None:
        if is_number:
            self._nodes[facts[0]] = self._stands[facts[0]] = tensor.item()
            return
        name = f"_tensor_constant{len(self.constants)}"
        self.constants.append((name, tensor))
        self._bind(self.graph.create_node("get_attr", name), facts)

    def _bind(self, node: Node, facts: tuple) -> None:
        number, dtype, sizes, strides = facts
        hints = [[size_value(s, self._hints) for s in of] for of in (sizes, strides)]
        stand = _C.functions.empty_strided(*hints, dtype=dtype, device="meta")
        self._nodes[number], self._stands[number] = node, stand
        node.meta["val"] = stand
        node.meta["sizes"] = tuple(size_text(s) if isinstance(s, tuple) else s for s in sizes)
        for d, size in enumerate(sizes):
            if isinstance(size, tuple) and size[0] == "symbol":
                self._sources.setdefault(size[1], (node, d))

    def _value(self, reference: Any) -> Any:
        return None if reference is None else self._nodes[reference[1]]

    def _size(self, size: Any) -> Any:
        """Returns the node that computes a size; a number is itself."""
        if not isinstance(size, tuple):
            return size
        if size in self._sizes:
            return self._sizes[size]
        if size[0] == "symbol":
            target, args = ops.aten.sym_size.int, self._sources[size[1]]
        else:
            target, args = _ARITHMETIC[size[0]], (self._size(size[1]), self._size(size[2]))
        node = self.graph.call_function(target, args)
        node.meta["val"], node.meta["size"] = size_value(size, self._hints), size_text(size)
        self._sizes[size] = node
        return node

    def _argument(self, x: Any, nodes: bool) -> Any:
        """Returns an argument with nodes, or with values like theirs."""
        if isinstance(x, list):
            return [self._argument(i, nodes) for i in x]
        if isinstance(x, _C.ScriptObject):
            return self._object(x) if nodes else x
        if not isinstance(x, tuple):
            return x
        if x[0] == "tensor" and not isinstance(self._nodes[x[1]], Node):
            node = self._number_as_tensor(self._nodes[x[1]])
            return node if nodes else node.meta["val"]
        if x[0] in ("value", "tensor"):
            return (self._nodes if nodes else self._stands)[x[1]]
        return self._size(x) if nodes else size_value(x, self._hints)

    def _object(self, x: Any) -> Node:
        """Returns the node of an object of a C++ class."""
        if x._identity() not in self.objects:
            name = f"_torchbind_obj{len(self.objects)}"
            self.constants.append((name, x))
            node = self.objects[x._identity()] = self.graph.create_node("get_attr", name)
            node.meta["val"] = x
        return self.objects[x._identity()]

    def _number_as_tensor(self, value: Any) -> Node:
        """Returns a node of a tensor with this number."""
        key = type(value), repr(value)
        if key not in self._numbers:
            dtype = {bool: _C.bool, int: _C.int64, float: _C.float64, complex: _C.complex128}[type(value)]
            node = self.graph.call_function(ops.aten.full.default, ([], value), {"dtype": dtype})
            node.meta["val"], node.meta["sizes"] = _C.functions.empty((), dtype=dtype, device="meta"), ()
            self._numbers[key] = node
        return self._numbers[key]

    def _call(
        self, name: str, values: list, results: list, phase: int, checkpoint: int, same: list | None
    ) -> None:
        if same is not None:  # a function with its own gradient: its calls stand before this node
            for facts, reference in zip(results, same):
                value = self._nodes[reference[1]]
                self._bind(self.graph.call_function(without_gradient, (value, name.partition("#")[0])), facts)
            return
        if name.startswith("facula_region::") and "_backward" not in name:
            self._region(name, values, results)
            return
        parameters = _C.operator_facts(name)["parameters"]
        operands = [k for k, x in enumerate(values) if isinstance(x, tuple) and x[0] == "value"]
        if operands and not any(isinstance(self._nodes[values[k][1]], Node) for k in operands):
            values[operands[0]] = ("tensor", values[operands[0]][1])  # an operator needs a tensor
        args, kwargs = _call_of(parameters, [self._argument(x, True) for x in values], values)
        stands = _call_of(parameters, [self._argument(x, False) for x in values], values)
        target = _shown(name, "functional", *stands)
        node = self.graph.call_function(target, args, kwargs)
        node.meta["phase"], node.meta["checkpoint"] = phase, checkpoint
        returns = _C.operator_facts(name)["returns"]
        if len(results) == 1 and not (returns and returns[0][1].endswith("[]")):
            self._bind(node, results[0])
            return
        for k, facts in enumerate(results):
            self._bind(self.graph.call_function(operator.getitem, (node, k)), facts)
        node.meta["val"] = tuple(self._stands[facts[0]] for facts in results)

    def _region(self, name: str, values: list, results: list) -> None:
        """Adds a call of control flow, whose functions are submodules."""
        from .._higher_order_ops._regions import REGIONS, region_of

        region = region_of(name)
        functions = []
        for part, module in zip(_PARTS[region.kind], region.modules):
            target = f"{part}_{sum(n.startswith(part) for n, _ in self.constants)}"
            self.constants.append((target, module))
            functions.append(self.graph.create_node("get_attr", target))
        operands, extras = (self._argument(x, True) for x in values)
        args = region.arguments(functions, operands, extras)
        node = self.graph.call_function(REGIONS[region.kind], args)
        for k, facts in enumerate(results):
            self._bind(self.graph.call_function(operator.getitem, (node, k)), facts)
        node.meta["val"] = tuple(self._stands[facts[0]] for facts in results)

    def drop_unused_items(self) -> None:
        """Erases items of results that no node reads."""
        for node in reversed(self.graph.nodes):
            if node.op == "call_function" and node.target is operator.getitem and not node.users:
                self.graph.erase_node(node)


_PARTS = {
    "cond": ("true_graph", "false_graph"),
    "while_loop": ("while_loop_cond_graph", "while_loop_body_graph"),
    "scan": ("scan_combine_graph",),
    "map_impl": ("body_graph",),
}


def without_gradient(x: Any, name: str) -> Any:
    """Returns ``x``, the result of a function that defines its own gradient, which a graph of fx does not
    contain: ``backward()`` through it raises NotImplementedError.
    """
    from ..autograd import Function

    class Result(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise NotImplementedError(f"the gradient that {name} defines is not part of an exported graph")

    return Result.apply(x)


def _call_of(parameters: list, shown: list, values: list) -> tuple[tuple, dict]:
    """Returns (args, kwargs) without the arguments that have their default value."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    needed = 0
    for (name, _, has_default, default, keyword_only, *_), x, value in zip(parameters, shown, values):
        is_default = has_default and name != "requires_grad" and _is_default(value, default)
        is_default |= name == "requires_grad"
        if keyword_only:
            if not is_default:
                kwargs[name] = x
            continue
        args.append(x)
        if not is_default:
            needed = len(args)
    return tuple(args[:needed]), kwargs


def _is_default(value: Any, default: Any) -> bool:
    if value is None:
        return True
    if default is None:
        return False
    if isinstance(value, list) and isinstance(default, (list, tuple)):
        return len(value) == len(default) and all(map(_is_default, value, default))
    return type(value) is type(default) and not isinstance(value, (tuple, list)) and bool(value == default)


def graph_of(program: Any, names: Iterable[str] | None = None) -> Lowered:
    """Returns the graph of a :class:`facula.program.Program` in the form of fx."""
    return Lowered(program._native, names)


def module_of(program: Any) -> GraphModule:
    """Returns a GraphModule that computes a program's results and new values of what it writes, from its
    arguments and captured tensors, as a tuple: ``(*results, *written)``.
    """
    lowered = graph_of(program)
    written = [node for _, node in lowered.mutated]
    lowered.graph.output((*lowered.outputs[: lowered.facts["results"]], *written))
    lowered.drop_unused_items()
    return GraphModule(dict(lowered.constants), lowered.graph)
