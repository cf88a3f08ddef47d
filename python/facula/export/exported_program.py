"""ExportedProgram: a graph of operators with the module's state as inputs, and checks of the sizes that it
is for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import _C
from .._ops import ops
from ..fx import Graph, GraphModule
from ..fx._bridge import size_text, size_value
from ..fx.graph import CodeGen
from ..nn.parameter import Parameter
from ..utils import _pytree as pytree
from .dynamic_shapes import INFINITE, Symbol, ValueRanges
from .graph_signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind

__all__ = ["CallSpec", "ExportedProgram", "GuardError", "ModuleCallEntry", "ModuleCallSignature"]

Tensor = _C.Tensor


class GuardError(AssertionError):
    """An input of another size, dtype or structure than the program was exported for."""


class CallSpec(NamedTuple):
    """The structure of ``(args, kwargs)`` and of the results."""

    in_spec: Any
    out_spec: Any


class ModuleCallSignature(NamedTuple):
    inputs: list
    outputs: list
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


class ModuleCallEntry(NamedTuple):
    fqn: str
    signature: ModuleCallSignature | None = None


class Input(NamedTuple):
    """One leaf of the arguments.

    Attributes:
        name: as errors show it: ``x``, ``batch['ids']``
        dtype: of a tensor, else None
        sizes: of a tensor: numbers, names of symbols
        value: of other leaves
    """

    name: str
    dtype: Any = None
    sizes: tuple = ()
    value: Any = None


class Checks:
    """The conditions on the arguments of a call.

    ``guards`` are comparisons of sizes on which the graph relies.
    """

    def __init__(
        self, inputs: list[Input], symbols: dict[str, Symbol], guards: list, call_spec: CallSpec
    ) -> None:
        self.inputs, self.symbols, self.guards, self.call_spec = inputs, symbols, guards, call_spec
        self.names: list[str] = []  # of the arguments, those by position first
        self.unread: frozenset[str] = frozenset()  # inputs that may be any tensors

    def leaves(self, args: tuple, kwargs: dict) -> list:
        """Returns the leaves of the arguments, after checking them."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.call_spec.in_spec:
            args, kwargs = self._arranged(args, kwargs)
            leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.call_spec.in_spec:
            raise GuardError(
                f"the program was exported for arguments of the structure {self.call_spec.in_spec}, and is "
                f"called with "
                f"{spec}"
            )
        values: dict[str, int] = {}
        for x, expected in zip(leaves, self.inputs):
            self._check(x, expected, values)
        for guard in self.guards:
            self._check_guard(guard, values)
        return leaves

    def _arranged(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Returns arguments by position and by name as in the example."""
        positional, by_name = self.call_spec.in_spec.children_specs
        count = len(positional.children_specs)
        kwargs = dict(zip(self.names[count:], args[count:])) | kwargs
        args = args[:count]
        while len(args) < count and len(args) < len(self.names) and self.names[len(args)] in kwargs:
            args = (*args, kwargs.pop(self.names[len(args)]))
        order = by_name.context or ()
        return args, {k: kwargs[k] for k in order if k in kwargs} | kwargs

    def _check(self, x: Any, expected: Input, values: dict[str, int]) -> None:
        name = expected.name
        if expected.dtype is None:
            if isinstance(expected.value, _C.ScriptObject) and type(x) is type(expected.value):
                return  # another object of the class, whose state the program changes
            if type(x) is not type(expected.value) or x != expected.value:
                raise GuardError(
                    f"{name} is {x!r}, and the program was exported for {expected.value!r}: what is no "
                    f"tensor is part "
                    "of a program\n  hint: pass it as a tensor, or export again"
                )
            return
        if not isinstance(x, Tensor):
            raise GuardError(f"{name} is a {type(x).__name__}, and the program was exported for a tensor")
        if name in self.unread:
            return
        if x.dtype != expected.dtype or x.dim() != len(expected.sizes):
            raise GuardError(
                f"{name} is a {x.dtype} tensor of {x.dim()} dimensions, and the program was exported for "
                f"{expected.dtype} and {len(expected.sizes)} dimensions"
            )
        for d, (n, size) in enumerate(zip(x.shape, expected.sizes)):
            if isinstance(size, int):
                if n != size:
                    raise GuardError(
                        f"Guard failed: {name}.size()[{d}] == {size}: it is {n}, and the program was "
                        f"exported for this "
                        f"size alone\n  hint: export with dynamic_shapes, which names size {d} of {name}"
                    )
                continue
            self._check_symbol(self.symbols[size], n, f"{name}.size()[{d}]", values)

    def _check_symbol(self, s: Symbol, n: int, text: str, values: dict[str, int]) -> None:
        if n < s.low or n > s.high:
            bound = f">= {s.low}" if n < s.low else f"<= {s.high}"
            fix = (
                f"Dim({s.dim.__name__!r}, {'min' if n < s.low else 'max'}={n})"
                if s.dim
                else "a Dim with these bounds"
            )
            raise GuardError(
                f"Guard failed: {text} {bound}: it is {n}, and {s.title} is from {s.low} to "
                f"{'any size' if s.high == INFINITE else s.high}\n  hint: export with {fix}, if the module "
                f"allows it"
            )
        if values.setdefault(s.name, n) != n:
            raise GuardError(
                f"Guard failed: {text} == {values[s.name]}: it is {n}, and {s.where} is {values[s.name]}; "
                f"both are {s.title}"
            )

    def _check_guard(self, guard: tuple, values: dict[str, int]) -> None:
        left, relation, right = guard
        try:
            a, b = size_value(left, values), size_value(right, values)
        except KeyError:  # a size that depends on elements; the operators check it
            return
        holds = {"==": a == b, "!=": a != b, "<": a < b, ">=": a >= b}[relation]
        if not holds:
            names = ", ".join(
                f"{s.title} ({name}) is {values[name]}" for name, s in self.symbols.items() if name in values
            )
            raise GuardError(
                f"Guard failed: {size_text(left)} {relation} {size_text(right)}: {names}\n"
                "  hint: the module's code depends on this comparison; export it for these sizes"
            )


class _ModuleCode(CodeGen):
    """The source of a program's module: the arguments are checked and flattened, the results get their
    structure.
    """

    def __init__(self, checks: Checks) -> None:
        self.checks = checks

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **ignored: Any) -> str:
        names = [v.partition(":")[0].partition("=")[0].strip() for v in free_vars if v != "self"]
        unpack = (
            f"\n    {', '.join(names)}, = self._checks.leaves(args, kwargs)"
            if names
            else "\n    self._checks.leaves(args, kwargs)"
        )
        return f"def forward(self, *args, **kwargs):{unpack}"

    def generate_output(self, output_args: Any, **ignored: Any) -> str:
        return f"return pytree.tree_unflatten({output_args!r}, self._out_spec)"

    def process_inputs(self, *args: Any) -> Any:
        return self.checks.leaves(args, {})

    def process_outputs(self, outputs: Any) -> Any:
        return pytree.tree_unflatten(list(outputs), self.checks.call_spec.out_spec)


class ExportedProgram:
    """A module as a graph: :func:`facula.export.export` returns it.

    Attributes:
        graph_module: the graph, whose inputs are parameters, buffers, constants and the arguments
        graph_signature: the kind of each input and output
        state_dict: parameters and buffers by name; the same tensors as those of the module
        constants: other tensors of the module, and objects of C++ classes, by name
        range_constraints: the bounds of sizes that may change, by symbol
        example_inputs: (args, kwargs) of export
    """

    def __init__(
        self,
        root: Any,
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        constants: dict[str, Any],
        checks: Checks,
        example_inputs: Any = None,
        module_call_graph: list | None = None,
    ) -> None:
        self._graph_module = GraphModule(root, graph)
        self._graph_signature = graph_signature
        self._state_dict, self._constants, self._checks = state_dict, constants, checks
        self._example_inputs = example_inputs
        call = ModuleCallSignature([], [], checks.call_spec.in_spec, checks.call_spec.out_spec)
        self._module_call_graph = module_call_graph or [ModuleCallEntry("", call)]
        self.validate()

    @property
    def graph_module(self) -> GraphModule:
        return self._graph_module

    @property
    def graph(self) -> Graph:
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        return self._state_dict

    @property
    def constants(self) -> dict[str, Any]:
        return self._constants

    @property
    def tensor_constants(self) -> dict[str, Any]:
        return {name: t for name, t in self._constants.items() if isinstance(t, Tensor)}

    @property
    def call_spec(self) -> CallSpec:
        return self._checks.call_spec

    @property
    def example_inputs(self) -> Any:
        return self._example_inputs

    @property
    def module_call_graph(self) -> list:
        return self._module_call_graph

    @property
    def dialect(self) -> str:
        return "ATEN"

    @property
    def range_constraints(self) -> dict[Symbol, ValueRanges]:
        return {s: ValueRanges(s.low, s.high) for s in self._checks.symbols.values()}

    def parameters(self) -> Iterator[Parameter]:
        """Returns the parameters."""
        for _, p in self.named_parameters():
            yield p

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name in self.graph_signature.parameters:
            yield name, self.state_dict[name]

    def buffers(self) -> Iterator[Tensor]:
        """Returns the buffers."""
        for _, b in self.named_buffers():
            yield b

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        for name in self.graph_signature.buffers:
            yield name, self.tensor_of(name)

    def tensor_of(self, target: str) -> Tensor:
        """Returns the parameter, buffer or constant with this name."""
        return self._state_dict[target] if target in self._state_dict else self._constants[target]

    def module(self, check_guards: bool = True) -> GraphModule:
        """Returns a module that computes the program; parameters and buffers are those of the program. It
        checks its arguments, writes the buffers that the program writes, and has gradients.
        """
        graph = Graph()
        graph._codegen = _ModuleCode(self._checks)
        signature, values = self.graph_signature, {}
        inputs = dict(
            zip((n for n in self.graph.nodes if n.op == "placeholder"), signature.input_specs, strict=True)
        )
        targets: dict[str, Any] = {}
        for node, spec in inputs.items():
            if spec.kind is InputKind.USER_INPUT:
                values[node] = graph.node_copy(node)
        for node, spec in inputs.items():
            if spec.target is not None and (node.users or spec.target in _written(signature)):
                values[node] = targets[spec.target] = graph.get_attr(spec.target)
                values[node].meta = dict(node.meta)
        for node in self.graph.nodes:
            if node.op not in ("placeholder", "output"):
                values[node] = graph.node_copy(node, lambda n: values[n])
        results = []
        by_name = {n.name: values.get(n) for n in self.graph.nodes}
        for item, spec in zip(self.graph.output_node().args[0], signature.output_specs, strict=True):
            value = values[item] if hasattr(item, "op") else item
            if spec.kind is OutputKind.USER_OUTPUT:
                results.append(value)
            else:
                to = (
                    by_name[spec.target]
                    if spec.kind is OutputKind.USER_INPUT_MUTATION
                    else targets[spec.target]
                )
                results.append((to, value))
        writes = [r for r in results if isinstance(r, tuple)]
        for to, value in writes:
            graph.call_function(ops.aten.copy_.default, (to, value))
        graph.output([r for r in results if not isinstance(r, tuple)])
        return self._built(graph)

    def _built(self, graph: Graph) -> GraphModule:
        root = {
            n.target: getattr_path(self._graph_module, n.target) for n in graph.nodes if n.op == "call_module"
        }
        for n in graph.nodes:
            if n.op == "get_attr":
                is_of_state = n.target in self._state_dict or n.target in self._constants
                root[n.target] = (
                    self.tensor_of(n.target) if is_of_state else getattr_path(self._graph_module, n.target)
                )
        module = GraphModule(root, graph)
        module._checks, module._out_spec = self._checks, self.call_spec.out_spec
        for spec in self.graph_signature.input_specs:  # also those that the graph does not read
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                _put(module, spec.target, self.tensor_of(spec.target), spec.persistent)
        return module

    def run_decompositions(
        self, decomp_table: dict[Any, Callable] | None = None, decompose_custom_triton_ops: bool = False
    ) -> ExportedProgram:
        """Returns a program in which the operators of ``decomp_table`` are replaced by the calls of its
        functions.
        """
        from ._trace import export_again

        return export_again(self, decomp_table or {})

    def validate(self) -> None:
        """Checks that the graph is well-formed and that its inputs and outputs are those of the signature."""
        from .verifier import Verifier

        Verifier().check(self)

    @property
    def verifier(self) -> Any:
        from .verifier import Verifier

        return Verifier

    @property
    def verifiers(self) -> list:
        return [self.verifier]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __deepcopy__(self, memo: dict) -> ExportedProgram:
        state = {k: copy.deepcopy(v, memo) for k, v in self._state_dict.items()}
        return type(self)(
            self._graph_module, copy.deepcopy(self.graph), copy.deepcopy(self._graph_signature), state,
            copy.deepcopy(self._constants, memo), self._checks, self._example_inputs, self._module_call_graph,
        )  # fmt: skip

    def __str__(self) -> str:
        code = self.graph_module.code.strip().replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {code}\n\nGraph signature: {self.graph_signature}\n"
            f"Range constraints: {self.range_constraints}\n"
        )

    __repr__ = __str__


def _written(signature: ExportGraphSignature) -> set:
    return {s.target for s in signature.output_specs if s.kind is not OutputKind.USER_OUTPUT}


def getattr_path(module: Any, path: str) -> Any:
    """Returns a member of a module by its path."""
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _put(module: Any, path: str, value: Any, persistent: bool | None) -> None:
    from ..nn import Module

    *parents, last = path.split(".")
    for name in parents:
        if name not in module._modules:
            module.add_module(name, Module())
        module = module._modules[name]
    if isinstance(value, Parameter):
        module._parameters[last] = value
    else:
        module.register_buffer(last, value, persistent=persistent is not False)


def constant_or_name(x: Any) -> Any:
    """Returns the argument of an output: that of a node's tensor or object, or a constant."""
    from .graph_signature import TensorArgument, object_argument

    if not hasattr(x, "op"):
        return ConstantArgument("", x)
    value = x.meta.get("val")
    return object_argument(x.name, value) if isinstance(value, _C.ScriptObject) else TensorArgument(x.name)
